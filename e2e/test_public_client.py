"""One program, two packages: it trains the same with our `elasticai_api` and with the public one, version 1.4.2.

The public package is installed by itself (`make .public-client`), and given to the program alone: the master and the
command line are ours in both.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from e2e import programs
from e2e.conftest import ROOT, STARTUP, Gates, Job, wait_until

PUBLIC = ROOT / ".public-client"
PACKAGES = {"ours": ROOT, "public": PUBLIC}

# Writes down every batch. Before its fourth, the second of a shard, it waits as long as the gate says.
PROGRAM = """
import json, os, sys, time
from pathlib import Path
import elasticai_api
from elasticai_api.common.data_shard_service import build_data_shard_service

gates = Path(os.environ["ELASTICDL_TEST_GATES"])
node = os.environ["ELASTICDL_NODE"]
print("package", elasticai_api.__file__, flush=True)
service = build_data_shard_service(
    batch_size=10,
    num_epochs=3,
    dataset_size=200,
    shuffle_shards=True,
    num_minibatches_per_shard=2,
    dataset_name="numbers",
)
epochs = []
batches = open(gates / f"batches-{node}", "w", buffering=1)
count = 0
while True:
    shard = service.fetch_shard()
    if not shard:
        break
    epochs.append(service.get_current_epoch())
    for start in range(shard.start, shard.end, 10):
        count += 1
        if count == 4:
            # What the public package has no word for, it does not do.
            getattr(service, "flush", lambda: None)()
            (gates / f"fourth-{node}").touch()
            while (gates / "hold").exists():
                time.sleep(0.01)
        end = min(start + 10, shard.end)
        batches.write(f"{start} {end}\\n")
        service.report_batch_done(end - start)
print("epochs", *sorted(set(epochs)), flush=True)
"""

RECORDS = """
import json, os
from pathlib import Path
from elasticai_api.common.data_shard_service import RecordIndexService

service = RecordIndexService(
    batch_size=10, num_epochs=2, dataset_size=100, shuffle=True, num_minibatches_per_shard=2, dataset_name="records"
)
records = []
while True:
    try:
        records.append(service.fetch_record_index())
    except StopIteration:
        break
    if len(records) == 50:
        checkpoint = json.loads(service.get_shard_checkpoint())
    if len(records) % 10 == 0:
        service.report_batch_done()
result = {"records": records, "keys": sorted(checkpoint), "name": checkpoint["dataset_name"]}
Path(os.environ["ELASTICDL_TEST_GATES"], "result").write_text(json.dumps(result))
"""

# The public package repeats what was refused ten times, with pauses that are not waited for here.
TWO_SIZES = """
import time
from elasticai_api.common.data_shard_service import build_data_shard_service

time.sleep = lambda seconds: None
for size in (200, 199):
    build_data_shard_service(batch_size=10, num_epochs=1, dataset_size=size, dataset_name="numbers")
"""


@pytest.fixture(params=list(PACKAGES))
def package(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start_program(package: str, start_job: Callable[..., Job], tmp_path: Path) -> Callable[..., Job]:
    assert (PUBLIC / "elasticai_api").is_dir(), "The public package is missing: make .public-client"

    def start(text: str, *flags: str) -> Job:
        (tmp_path / "program").mkdir()
        script = tmp_path / "program" / "train.py"
        script.write_text(text)
        command = f"env PYTHONPATH={PACKAGES[package]} {sys.executable} {script}"
        return start_job("train", f"--job_command={command}", "--job_name=program", *flags)

    return start


def _batches(gates: Gates) -> list[tuple[int, int]]:
    lines = [line for path in gates.folder.glob("batches-*") for line in path.read_text().splitlines()]
    return [(int(start), int(end)) for start, end in map(str.split, lines)]


EXPECTED = Counter([(start, start + 10) for start in range(0, 200, 10)] * 3)


def test_a_killed_worker_and_a_killed_master(
    package: str, start_program: Callable[..., Job], gates: Gates
) -> None:
    (gates.folder / "hold").touch()
    job = start_program(PROGRAM, "--num_workers=2")
    for node in ("worker-0", "worker-1"):
        wait_until((gates.folder / f"fourth-{node}").exists, f"{node} has trained three batches")
    programs.kill(job, "master")
    wait_until(lambda: "started again" in job.output, "the master is back")
    last = (gates.folder / "batches-worker-0").read_text().splitlines()[2].split()
    programs.kill(job, "worker-0")
    (gates.folder / "hold").unlink()
    programs.assert_exact(job, dataset="numbers", epochs=3, size=200)
    # With ours no batch is trained again. The public package reports whole shards only.
    again = Counter() if package == "ours" else Counter([(int(last[0]), int(last[1]))])
    assert Counter(_batches(gates)) == EXPECTED + again
    logs = job.logs()
    assert f"package {PACKAGES[package] / 'elasticai_api'}" in logs
    epochs = {epoch for line in logs.splitlines() if line.startswith("epochs") for epoch in line.split()[1:]}
    assert {"2", "3"} <= epochs <= {"1", "2", "3"}


def test_records_one_by_one(start_program: Callable[..., Job], gates: Gates) -> None:
    job = start_program(RECORDS, "--num_workers=1")
    programs.assert_exact(job, dataset="records", epochs=2, size=100)
    result: dict[str, Any] = json.loads((gates.folder / "result").read_text())
    assert Counter(result["records"]) == Counter(list(range(100)) * 2)
    assert result["records"][:100] != sorted(result["records"][:100])
    assert result["name"] == "records"
    assert {
        "todo",
        "doing",
        "current_epoch",
        "num_epochs",
        "batch_size",
        "dataset_size",
        "shuffle_shards",
    } <= set(result["keys"])


def test_two_sizes_of_one_data_set(start_program: Callable[..., Job]) -> None:
    """With ours the job fails at once; with the public package, which has no token, by its program's error."""
    job = start_program(TWO_SIZES, "--num_workers=1", "--relaunch_on_worker_failure=0")
    assert job.wait() == 1
    said = " ".join(job.output.split())
    assert "The data set numbers has 199 samples for one worker and 200 for another." in said
    programs.assert_nothing_left(job)


def test_estimator_with_all_roles_trains_with_public_client(
    start_job: Callable[..., Job], tmp_path: Path
) -> None:
    """The program of the guide, chief, worker, parameter server and evaluator, with the public package. With ours it is
    run by `test_estimator_jobs`.
    """
    shutil.copytree(ROOT / "model_zoo", tmp_path / "model_zoo", ignore=shutil.ignore_patterns("__pycache__"))
    make = [sys.executable, "-m", "elasticdl", "data", "make", "iris", f"--file={tmp_path}/iris.data"]
    subprocess.run(make, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    # From a folder without our package in it: Python looks there first.
    program = (
        f"cd {tmp_path} && PYTHONPATH={STARTUP}:{PUBLIC} exec {sys.executable} -m model_zoo.iris.dnn_estimator "
        "--training_data=iris.data --num_epochs=40"
    )
    job = start_job(
        "train",
        f"--job_command={program}",
        "--need_tf_config=true",
        "--distribution_strategy=ParameterServerStrategy",
        "--num_ps=1",
        "--num_workers=1",
        "--num_evaluator=1",
        "--job_name=estimator",
    )
    programs.assert_exact(job, dataset="iris_training_data", epochs=40, size=120)
    # What only the public package says.
    assert "training process reporter" in programs.log(job, "chief-0")
    accuracy = re.search(r"^Final accuracy: ([\d.]+)", programs.log(job, "chief-0"), re.M)
    assert accuracy, job.logs()
    assert float(accuracy[1]) >= 0.9
