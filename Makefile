# `make quickstart` trains a model elastically on this machine, `make test` runs the tests, `make help` lists the rest.
# Each target makes its own environment; nothing but Python 3.10-3.13, pip and make is needed.

PYTHON ?= python3
FRAMEWORK ?= keras
SOAK ?= 50
# Without --no-compile, compiling the thousands of modules of a framework takes longer than the rest of an installation.
# On a terminal pip shows how far it is; elsewhere its hundreds of lines would hide what matters.
QUIET := $(shell test -t 2 || echo --quiet)
PIP_INSTALL = -m pip install $(QUIET) --disable-pip-version-check --no-compile

# The tests start hundreds of processes. With PYTHONDONTWRITEBYTECODE set, each would compile all our modules.
export PYTHONDONTWRITEBYTECODE =

# An environment is installed again only after a change of these.
STAMP = .installed
SOURCES = pyproject.toml CMakeLists.txt $(wildcard requirements/*.txt build_backend/*.py native/*)

TEST_ENV = .venv-test
KERAS3_ENV = .venv-keras3
# The public elasticai_api: not an environment, a folder that some tests put in front of ours.
PUBLIC_CLIENT = .public-client
QUICK_ENV = .venv-$(FRAMEWORK)
# Empty: its installation leaves the extension in the tree.
KERNELS_ENV = .venv-kernels
RELEASE_ENV = .venv-release-$(notdir $(PYTHON))
DOCS_ENV = .venv-docs
BY_ZIG = .venv-zig

# The packages whose line coverage is measured, by their own tests: state machines, protocols and validation, without a
# framework. conftest.py gives these tests the marker `covered`. Tracing takes 2.2 times the processor time of random
# histories, so those of these packages are among the other unit tests. Each test runs once.
COVERED = controller jobs master/health master/ledger scheduling wire
# `.ci/run` reruns a failed test alone, once, and lists it: `-m e2e.rerun`.
PYTEST ?= -m pytest

.DEFAULT_GOAL := help
.PHONY: help quickstart test lint unit unit-keras3 histories soak coverage e2e e2e-programs chaos chaos-kubernetes fuzz e2e-keras3 \
  e2e-kubernetes kubernetes-prepared kernels \
  kernels-by-zig benchmark benchmark-quick proto reference pictures docs release screenshots sessions clean $(PUBLIC_CLIENT)

# The targets with a `##` comment behind them.
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

quickstart: $(QUICK_ENV)/$(STAMP)  ## train a CNN on digits: one parameter server, two workers (FRAMEWORK=keras|torch|paddle)
	test -d data/digits || $(QUICK_ENV)/bin/elasticdl data make digits --output=data/digits
	$(QUICK_ENV)/bin/elasticdl train \
	  --model_zoo=model_zoo \
	  --model_def=digits.$(FRAMEWORK)_cnn.custom_model \
	  --training_data=data/digits/train \
	  --validation_data=data/digits/test \
	  --distribution_strategy=ParameterServerStrategy \
	  --num_ps=1 \
	  --num_workers=2 \
	  --minibatch_size=32 \
	  --num_epochs=12 \
	  --evaluation_steps=200 \
	  --output=out/digits-$(FRAMEWORK)

test: lint unit coverage unit-keras3  ## lint and the tests of the packages

lint: $(TEST_ENV)/$(STAMP)  ## ruff, mypy, import-linter, retired words
	$(TEST_ENV)/bin/ruff check
	$(TEST_ENV)/bin/ruff format --check
	$(TEST_ENV)/bin/mypy
	$(TEST_ENV)/bin/lint-imports
	$(TEST_ENV)/bin/python -m tools.vocabulary

unit: $(TEST_ENV)/$(STAMP)  ## the tests of the packages, but those of `make coverage`
	$(TEST_ENV)/bin/python $(PYTEST) -n 2 -m "not covered or soak" tests

# What depends on Keras, and metrics with the newer NumPy. What knows no framework is tested by `make unit`.
unit-keras3: $(KERAS3_ENV)/$(STAMP)  ## the tests of Keras models, with Keras 3
	$(KERAS3_ENV)/bin/python $(PYTEST) -n 2 tests/worker/contract tests/worker/definition tests/worker/keras tests/worker/scoring \
	  tests/ps/embedding/optimizers/test_keras_optimizers.py tests/elasticai_api/tensorflow -k "not torch and not estimator" \
	  -m "not keras2" --ignore=tests/worker/keras/optimizer/test_legacy_optimizers.py

histories: $(TEST_ENV)/$(STAMP)  ## fifty times as many random histories as the unit tests run (SOAK=50)
	ELASTICDL_SOAK=$(SOAK) $(TEST_ENV)/bin/python -m pytest -n 2 --timeout=7200 -m soak tests/master tests/ps tests/scheduling

coverage: $(TEST_ENV)/$(STAMP)  ## the tests of the packages without a framework, with their line coverage
	@echo "Line coverage, by their own tests, of elasticdl/: $(COVERED)"
	$(TEST_ENV)/bin/python $(PYTEST) -n 2 -m "not soak" $(subst /,.,$(COVERED:%=--cov=elasticdl/%)) --cov-report=term \
	  $(COVERED:%=tests/%)

e2e-programs: $(TEST_ENV)/$(STAMP)  ## Debian packages for the faults and the browser of e2e, as root
	$(TEST_ENV)/bin/python -m e2e.campaign.programs

# Three at a time, also on two cores: the test of a whole job waits for processes about as long as it computes.
e2e: e2e-programs $(PUBLIC_CLIENT)/$(STAMP) e2e-keras3  ## whole jobs on this machine, with processes killed
	$(TEST_ENV)/bin/python -m e2e.rerun -n 3 --dist=worksteal --durations=25 --ignore=e2e/kubernetes e2e

# Jobs whose parameters say how often each sample was applied, with faults that a seed decides.
CHAOS_RUNS ?= 100
CHAOS_SEED ?= 1
chaos: e2e-programs  ## a hundred jobs of all strategies with kills, partitions, full disks ... (CHAOS_RUNS, CHAOS_SEED)
	$(TEST_ENV)/bin/python -m e2e.campaign --runs=$(CHAOS_RUNS) --seed=$(CHAOS_SEED)

SOAK_MINUTES ?= 120
soak: $(TEST_ENV)/$(STAMP)  ## one job for two hours with a kill every 20 seconds, and what grows meanwhile (SOAK_MINUTES)
	$(TEST_ENV)/bin/python -m e2e.campaign.soak --minutes=$(SOAK_MINUTES)

# A run takes four minutes.
chaos-kubernetes: $(TEST_ENV)/$(STAMP)  ## random faults under a controller, in the cluster and outside (ELASTICDL_CHAOS_RUNS)
	ELASTICDL_CHAOS_RUNS=$${ELASTICDL_CHAOS_RUNS:-5} $(TEST_ENV)/bin/python -m e2e.cluster with \
	  $(TEST_ENV)/bin/python -m pytest -s e2e/kubernetes/test_controller_chaos.py

# The TensorFlow of Keras 3 comes without TensorBoard.
e2e-keras3: $(KERAS3_ENV)/$(STAMP)  ## whole jobs with Keras models, with Keras 3
	$(KERAS3_ENV)/bin/python -m e2e.rerun -n 2 e2e/test_keras_jobs.py \
	  -k "callbacks or early_stopping or served or filtering or schedule"

# On the cluster that KUBECONFIG names, or on one made for it (on Debian, as root).
e2e-kubernetes: $(TEST_ENV)/$(STAMP) $(PUBLIC_CLIENT)/$(STAMP)  ## whole jobs on a real Kubernetes
	$(TEST_ENV)/bin/python -m e2e.cluster with $(TEST_ENV)/bin/python -m e2e.rerun -n 3 --maxschedchunk=1 -rs --durations=25 e2e/kubernetes

kubernetes-prepared: $(TEST_ENV)/$(STAMP)  ## the programs and image layers of e2e-kubernetes (minutes, once)
	$(TEST_ENV)/bin/python -m e2e.cluster prepare

kernels: $(KERNELS_ENV)/$(STAMP)  ## the C++ extension in the source tree, for environments without an installation of it

kernels-by-zig: $(TEST_ENV)/$(STAMP)  ## build and test the package without a C++ compiler (three minutes)
	rm -rf $(BY_ZIG) && mkdir -p $(BY_ZIG)/tree $(BY_ZIG)/no-compiler
	cp -r pyproject.toml README.md CMakeLists.txt build_backend native elasticdl elasticai_api model_zoo $(BY_ZIG)/tree
	rm -f $(BY_ZIG)/tree/elasticdl/ps/_kernels.*.so $(BY_ZIG)/tree/elasticdl/ps/._kernels.*
	env -u CXX PATH=$(abspath $(BY_ZIG)/no-compiler) $(abspath $(TEST_ENV))/bin/python -m pip wheel \
	  --disable-pip-version-check --no-deps -v -w $(BY_ZIG) $(BY_ZIG)/tree
	$(TEST_ENV)/bin/python $(PIP_INSTALL) --no-deps --target $(BY_ZIG)/installed $(BY_ZIG)/*.whl
	cd $(BY_ZIG)/installed && $(abspath $(TEST_ENV))/bin/python -c \
	  "from elasticdl.ps import _kernels; assert _kernels.__file__.startswith('$(abspath $(BY_ZIG))'), _kernels"
	cd $(BY_ZIG)/installed && $(abspath $(TEST_ENV))/bin/python -m pytest --rootdir=$(CURDIR) $(CURDIR)/tests/ps/embedding/table/test_table_optimizers.py

# Malformed input for hours: at every port with and without a token, in files of every format, in the job file.
FUZZ_ROUNDS ?= 10000
fuzz: $(TEST_ENV)/$(STAMP)  ## malformed messages and files (FUZZ_ROUNDS)
	GRPC_VERBOSITY=NONE $(TEST_ENV)/bin/python -m tests.fuzz --rounds=$(FUZZ_ROUNDS)

benchmark: $(TEST_ENV)/$(STAMP)  ## every speed that we claim, beside its peer
	$(TEST_ENV)/bin/python -m benchmarks $(if $(RESULTS),--json=$(RESULTS))

benchmark-quick: $(TEST_ENV)/$(STAMP)  ## one figure for each claim of docs/performance.md, in ten minutes
	$(TEST_ENV)/bin/python -m benchmarks --brief $(if $(RESULTS),--json=$(RESULTS))

proto: $(TEST_ENV)/$(STAMP)  ## generate the code of the .proto files
	$(TEST_ENV)/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. \
	  elasticdl/wire/master.proto elasticdl/wire/ps.proto \
	  elasticai_api/proto/elasticai_api.proto elasticai_api/proto/progress.proto \
	  elasticai_api/proto/allreduce.proto
	$(TEST_ENV)/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
	  elasticdl/wire/example.proto elasticdl/wire/event.proto

reference: $(TEST_ENV)/$(STAMP)  ## generate docs/reference from the code
	$(TEST_ENV)/bin/python -m tools.reference

pictures: $(TEST_ENV)/$(STAMP)  ## draw the diagrams of the documentation (docs/images)
	$(TEST_ENV)/bin/python docs/images/architecture.py
	$(TEST_ENV)/bin/python docs/images/concepts.py

docs: $(DOCS_ENV)/$(STAMP)  ## the documentation as a web site in out/site; broken links fail
	PYTHONPATH=. $(DOCS_ENV)/bin/zensical build --clean >.docs.log 2>&1 || { cat .docs.log; exit 1; }
	$(DOCS_ENV)/bin/python -m tools.site.checker out/site

sessions: $(TEST_ENV)/$(STAMP)  ## record the terminal sessions of the documentation (docs/images)
	$(TEST_ENV)/bin/python -m tools.record_sessions

screenshots: e2e-programs  ## record the pictures of the dashboard (docs/images)
	$(TEST_ENV)/bin/python -m tools.record_dashboard

# For each Python version in turn: `make release PYTHON=python3.12`. The sdist leaves the built extension out, and the wheel
# is built from the sdist, so it has nothing of this tree that the sdist has not.
release: $(RELEASE_ENV)/$(STAMP)  ## an sdist, a manylinux wheel and the two thin wheels in dist/, checked
	$(RELEASE_ENV)/bin/python -m build --outdir dist
	for each in distributions/*; do $(RELEASE_ENV)/bin/python -m build --wheel --outdir dist $$each || exit 1; done
	PATH=$(abspath $(RELEASE_ENV)/bin):$$PATH auditwheel repair --wheel-dir dist dist/*-linux_*.whl
	rm dist/*-linux_*.whl
	$(RELEASE_ENV)/bin/twine check --strict dist/*

clean:  ## remove environments, data and results
	rm -rf .venv-* $(PUBLIC_CLIENT) .go-server data out

$(TEST_ENV)/$(STAMP): $(SOURCES)
	$(PYTHON) -m venv $(TEST_ENV)
	$(TEST_ENV)/bin/python $(PIP_INSTALL) -r requirements/test.txt -e '.[keras,torch,estimator,paddle,libraries,kubernetes,dashboard,datasets,dev]'
	touch $@

$(PUBLIC_CLIENT): $(PUBLIC_CLIENT)/$(STAMP)

$(PUBLIC_CLIENT)/$(STAMP): $(TEST_ENV)/$(STAMP) requirements/public-client.txt
	$(TEST_ENV)/bin/python $(PIP_INSTALL) --upgrade --no-deps --target $(PUBLIC_CLIENT) -r requirements/public-client.txt
	touch $@

$(KERNELS_ENV)/$(STAMP): $(SOURCES)
	$(PYTHON) -m venv $(KERNELS_ENV)
	$(KERNELS_ENV)/bin/python $(PIP_INSTALL) --no-deps -e .
	touch $@

$(KERAS3_ENV)/$(STAMP): $(SOURCES)
	$(PYTHON) -m venv $(KERAS3_ENV)
	$(KERAS3_ENV)/bin/python $(PIP_INSTALL) -r requirements/keras3.txt -e '.[keras,kubernetes,datasets]' \
	  pytest pytest-xdist pytest-timeout hypothesis psutil
	touch $@

$(DOCS_ENV)/$(STAMP): requirements/docs.txt
	$(PYTHON) -m venv $(DOCS_ENV)
	$(DOCS_ENV)/bin/python $(PIP_INSTALL) -r requirements/docs.txt
	touch $@

$(RELEASE_ENV)/$(STAMP): requirements/release.txt
	$(PYTHON) -m venv $(RELEASE_ENV)
	$(RELEASE_ENV)/bin/python $(PIP_INSTALL) -r requirements/release.txt
	touch $@

$(QUICK_ENV)/$(STAMP): $(SOURCES)
	@echo "Installing ElasticDL and $(FRAMEWORK) into $(QUICK_ENV), once. It takes some minutes."
	$(PYTHON) -m venv $(QUICK_ENV)
	$(QUICK_ENV)/bin/python $(PIP_INSTALL) -r requirements/$(FRAMEWORK).txt -e '.[$(FRAMEWORK),datasets]'
	touch $@
