"""Programs with `elasticai_api` whose processes are killed at any moment: nothing is left out, the audit is exact."""

from __future__ import annotations

import contextlib
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from e2e import programs
from e2e.conftest import ROOT, Gates, Job, wait_until

# Each batch is written down before it is reported. The last epoch does not begin while it is held.
SHARDS = """
import os, time
from pathlib import Path
from elasticai_api.common.data_shard_service import build_data_shard_service

gates = Path(os.environ["ELASTICDL_TEST_GATES"])
out = open(gates / ("batches-" + os.environ["ELASTICDL_NODE"]), "w", buffering=1)
service = build_data_shard_service(
    batch_size=10, num_epochs=3, dataset_size=20_000, shuffle=True, num_minibatches_per_shard=4, dataset_name="d"
)
while (shard := service.fetch_shard()) is not None:
    while service.get_current_epoch() == 3 and (gates / "hold").exists():
        time.sleep(0.01)
    for start in range(shard.start, shard.end, 10):
        out.write(f"{start}\\n")
        time.sleep(0.001)  # the training
        service.report_batch_done()
"""

LOADER = """
import os, time
from pathlib import Path
import torch
from torch.utils.data import TensorDataset
from elasticai_api.common.data_shard_service import build_data_shard_service
from elasticai_api.pytorch.dataset import ElasticDataLoader

gates = Path(os.environ["ELASTICDL_TEST_GATES"])
node = os.environ["ELASTICDL_NODE"]
torch.set_num_threads(1)
service = build_data_shard_service(
    batch_size=10, num_epochs=2, dataset_size=600, num_minibatches_per_shard=4, dataset_name="d"
)
out = open(gates / f"batches-{node}", "w", buffering=1)
for count, (numbers,) in enumerate(
    ElasticDataLoader(TensorDataset(torch.arange(600)), service, num_workers=2)
):
    if count == 6:
        service.flush()
        (gates / f"sixth-{node}").touch()
        while (gates / "hold").exists():
            time.sleep(0.01)
    for number in numbers.tolist():
        out.write(f"{number}\\n")
"""


@pytest.fixture
def start_program(start_job: Callable[..., Job], tmp_path: Path) -> Callable[..., Job]:
    def start(text: str, *flags: str) -> Job:
        script = tmp_path / "train.py"
        script.write_text(text)
        command = f"env PYTHONPATH={ROOT} {sys.executable} {script}"
        return start_job("train", f"--job_command={command}", "--job_name=program", *flags)

    return start


def _written(gates: Gates) -> Counter[int]:
    lines = [line for path in gates.folder.glob("batches-*") for line in path.read_text().split()]
    return Counter(int(line) for line in lines)


def test_workers_and_masters_killed_again_and_again(start_program: Callable[..., Job], gates: Gates) -> None:
    dice = random.Random(1)
    (gates.folder / "hold").touch()
    job = start_program(SHARDS, "--num_workers=3")
    for kills in range(1, 13):
        wait_until(
            lambda wanted=300 * kills: sum(_written(gates).values()) >= wanted, "batches are trained on"
        )
        # Any: a worker's, one of whom none has been heard yet, the master's.
        victims = sorted(programs.processes(job), key=lambda process: process.pid)
        with contextlib.suppress(psutil.NoSuchProcess):
            dice.choice(victims).kill()
    (gates.folder / "hold").unlink()
    programs.assert_exact(job, dataset="d", epochs=3, size=20_000)
    written = _written(gates)
    assert set(written) == set(range(0, 20_000, 10))
    assert min(written.values()) >= 3


def test_a_killed_worker_with_loader_processes(start_program: Callable[..., Job], gates: Gates) -> None:
    (gates.folder / "hold").touch()
    job = start_program(LOADER, "--num_workers=1")
    wait_until((gates.folder / "sixth-worker-0").exists, "six batches are trained on")
    children = psutil.Process(programs.pid_of(job, "worker-0")).children(recursive=True)
    programs.kill(job, "worker-0")
    (gates.folder / "hold").unlink()
    programs.assert_exact(job, dataset="d", epochs=2, size=600)
    # The reported ones are not trained on again, those that were loaded ahead are.
    assert _written(gates) == Counter(list(range(600)) * 2)
    assert len(children) >= 2
    wait_until(lambda: not any(child.is_running() for child in children), "loader processes are gone")
