# Two commands: `make quickstart` trains a model elastically on this machine, `make test` passes the tests.
# Each makes its own environment; nothing but Python 3.10-3.12, pip and make is needed.

PYTHON ?= python3
FRAMEWORK ?= keras
# Of a framework's thousands of modules most are never imported, and those that are Python compiles then: compiling all
# of them takes longer than all else that installing does.
PIP_INSTALL = -m pip install --quiet --disable-pip-version-check --no-compile

# Hundreds of processes are started here: each would compile all our modules, where it is forbidden to keep the result.
export PYTHONDONTWRITEBYTECODE =

# So that a second run does not install again, and a change of what is to be installed does.
STAMP = .installed
SOURCES = pyproject.toml CMakeLists.txt $(wildcard requirements/*.txt build_backend/*.py native/*)

TEST_ENV = .venv-test
KERAS3_ENV = .venv-keras3
# The public elasticai_api: not an environment, a folder that some tests put in front of ours.
PUBLIC_CLIENT = .public-client
QUICK_ENV = .venv-$(FRAMEWORK)
# With nothing in it: what is wanted is what installing leaves in the tree.
KERNELS_ENV = .venv-kernels
BY_ZIG = .venv-zig

.PHONY: quickstart test kernels kernels-by-zig lint unit unit-keras3 e2e e2e-keras3 e2e-kubernetes kubernetes-prepared fuzz benchmark proto reference clean $(PUBLIC_CLIENT)

## The main job: digits, a CNN, one parameter server, two workers, evaluation, export.
quickstart: $(QUICK_ENV)/$(STAMP)
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

test: lint unit unit-keras3

lint: $(TEST_ENV)/$(STAMP)
	$(TEST_ENV)/bin/ruff check
	$(TEST_ENV)/bin/ruff format --check
	$(TEST_ENV)/bin/mypy
	$(TEST_ENV)/bin/lint-imports

unit: $(TEST_ENV)/$(STAMP)
	$(TEST_ENV)/bin/python -m pytest -n 2 tests

# What touches Keras, once more with Keras 3.
unit-keras3: $(KERAS3_ENV)/$(STAMP)
	$(KERAS3_ENV)/bin/python -m pytest -n 2 tests/worker tests/ps/embedding/optimizers/test_keras_optimizers.py \
	  tests/elasticai_api/test_tensorflow.py --ignore=tests/worker/torch -k "not torch and not estimator"

## Whole jobs with real processes, and processes really killed. Three at a time, also on two cores: a test waits, for
## processes to start and for deadlines to pass, about as long as it computes.
e2e: $(TEST_ENV)/$(STAMP) $(PUBLIC_CLIENT)/$(STAMP) e2e-keras3
	$(TEST_ENV)/bin/python -m e2e.again -n 3 --dist=worksteal --durations=25 --ignore=e2e/kubernetes e2e

# Jobs with Keras models, once more with Keras 3. Its TensorFlow comes without TensorBoard.
e2e-keras3: $(KERAS3_ENV)/$(STAMP)
	$(KERAS3_ENV)/bin/python -m pytest -n 2 e2e/test_keras_jobs.py \
	  -k "callbacks or early_stopping or served or filtering or schedule"

## Jobs on a real Kubernetes: the one that KUBECONFIG names, or one that is made for it (on Debian, as root).
e2e-kubernetes: $(TEST_ENV)/$(STAMP) $(PUBLIC_CLIENT)/$(STAMP)
	$(TEST_ENV)/bin/python -m e2e.cluster with $(TEST_ENV)/bin/python -m e2e.again -n 3 --maxschedchunk=1 -rs --durations=25 e2e/kubernetes

# What that needs of this machine before a cluster is started, which takes minutes once.
kubernetes-prepared: $(TEST_ENV)/$(STAMP)
	$(TEST_ENV)/bin/python -m e2e.cluster prepare

## The extension, beside the modules that import it: for who runs this tree with an environment that it is not installed in.
kernels: $(KERNELS_ENV)/$(STAMP)

## The package as it is built on a machine without a compiler, by the one that pip fetches: three minutes of a core.
kernels-by-zig: $(TEST_ENV)/$(STAMP)
	rm -rf $(BY_ZIG) && mkdir -p $(BY_ZIG)/tree $(BY_ZIG)/no-compiler
	cp -r pyproject.toml README.md CMakeLists.txt build_backend native elasticdl elasticai_api $(BY_ZIG)/tree
	rm -f $(BY_ZIG)/tree/elasticdl/ps/_kernels.*.so $(BY_ZIG)/tree/elasticdl/ps/._kernels.*
	env -u CXX PATH=$(abspath $(BY_ZIG)/no-compiler) $(abspath $(TEST_ENV))/bin/python -m pip wheel \
	  --disable-pip-version-check --no-deps -v -w $(BY_ZIG) $(BY_ZIG)/tree
	$(TEST_ENV)/bin/python $(PIP_INSTALL) --no-deps --target $(BY_ZIG)/installed $(BY_ZIG)/*.whl
	cd $(BY_ZIG)/installed && $(abspath $(TEST_ENV))/bin/python -c \
	  "from elasticdl.ps import _kernels; assert _kernels.__file__.startswith('$(abspath $(BY_ZIG))'), _kernels"
	cd $(BY_ZIG)/installed && $(abspath $(TEST_ENV))/bin/python -m pytest --rootdir=$(CURDIR) $(CURDIR)/tests/ps/embedding/table/test_table_optimizers.py

## Nonsense for hours: at every port with and without a token, in files of every format, in the job file.
FUZZ_ROUNDS ?= 100000
fuzz: $(TEST_ENV)/$(STAMP)
	$(TEST_ENV)/bin/python -m tests.fuzz --rounds=$(FUZZ_ROUNDS)

benchmark: $(TEST_ENV)/$(STAMP)
	$(TEST_ENV)/bin/python -m benchmarks

## What is generated from .proto files and from the flags.
proto: $(TEST_ENV)/$(STAMP)
	$(TEST_ENV)/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. \
	  elasticdl/wire/master.proto elasticdl/wire/ps.proto \
	  elasticai_api/proto/elasticai_api.proto elasticai_api/proto/progress.proto \
	  elasticai_api/proto/allreduce.proto
	$(TEST_ENV)/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
	  elasticdl/wire/example.proto elasticdl/wire/event.proto

reference: $(TEST_ENV)/$(STAMP)
	$(TEST_ENV)/bin/python -m elasticdl.cli.reference > docs/reference/flags.md

clean:
	rm -rf .venv-* $(PUBLIC_CLIENT) .go-server data out

$(TEST_ENV)/$(STAMP): $(SOURCES)
	$(PYTHON) -m venv $(TEST_ENV)
	$(TEST_ENV)/bin/python $(PIP_INSTALL) -r requirements/test.txt -e '.[keras,torch,estimator,paddle,kubernetes,datasets,dev]'
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

$(QUICK_ENV)/$(STAMP): $(SOURCES)
	$(PYTHON) -m venv $(QUICK_ENV)
	$(QUICK_ENV)/bin/python $(PIP_INSTALL) -r requirements/$(FRAMEWORK).txt -e '.[$(FRAMEWORK),datasets]'
	touch $@
