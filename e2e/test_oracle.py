"""Every sample is applied once on every parameter server, whatever is killed, as the parameters say, not the audit.

The model (`zoo/oracle`) leaves a trace of each sample. Workers kill themselves between the pushes of a batch to several
servers; servers and the master are killed from here. By a seed, so that a run can be repeated; ELASTICDL_CHAOS_RUNS is
the number of seeds. `make chaos` (`e2e/campaign`) has the other strategies and faults.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from elasticdl.ps.checkpoint.opened_checkpoint import open_snapshot
from elasticdl.ps.checkpoint.resharding import TRAINABLE

SIZE, EPOCHS = 768, 2
SEEDS = range(int(os.environ.get("ELASTICDL_CHAOS_RUNS", "1")))


def start_oracle(start_job: Callable[..., Any], folder: Path, seed: int, *arguments: str) -> Any:
    data = folder / "samples.csv"
    data.write_text("sample\n" + "".join(f"{sample}\n" for sample in range(SIZE)))
    return start_job(
        "train",
        "--model_zoo=e2e/zoo",
        "--model_def=oracle.model.custom_model",
        f"--training_data={data}",
        f"--job_name=oracle-{seed}",
        "--minibatch_size=8",
        "--num_minibatches_per_task=4",
        f"--num_epochs={EPOCHS}",
        "--num_workers=2",
        "--num_ps=3",
        f"--checkpoint_dir={folder}/checkpoints",
        "--checkpoint_steps=100",
        *arguments,
        environment={"ELASTICDL_TEST_SEED": str(seed)},
    )


def _plan_deaths(gates: Any, count: int) -> None:
    for number in range(count):
        (gates.folder / f"death-{number}").touch()


def assert_each_sample_applied_once(job: Any, checkpoints: Path, *, is_known: bool = True) -> None:
    """`is_known`: the audit is sure of it too."""
    job.assert_exact(epochs=EPOCHS, size=SIZE)
    assert not is_known or "twice" not in job.audit(), job.audit()
    with open_snapshot(checkpoints) as found:
        ids, values = found.table("rows").to_numpy()
        counters = [float(found.array(name)[0]) for name in found.arrays[TRAINABLE]]
    applied = np.zeros(SIZE)
    applied[ids] = values[:, 0]
    wrong = {int(sample): float(applied[sample]) for sample in np.flatnonzero(applied != EPOCHS)}
    assert not wrong, f"{len(wrong)} samples, of them {dict(list(wrong.items())[:20])}"
    assert counters == [SIZE * EPOCHS] * 12


@pytest.mark.parametrize("seed", SEEDS)
def test_worker_killed_between_pushes_leaves_each_sample_once(
    start_job: Callable[..., Any], gates: Any, tmp_path: Path, seed: int
) -> None:
    _plan_deaths(gates, 3)
    job = start_oracle(start_job, tmp_path, seed)
    assert_each_sample_applied_once(job, tmp_path / "checkpoints")
    assert list(gates.folder.glob("died-*"))


@pytest.mark.parametrize("seed", SEEDS)
def test_kills_of_all_roles_leave_each_sample_once(
    start_job: Callable[..., Any], gates: Any, tmp_path: Path, seed: int
) -> None:
    source = random.Random(seed)
    _plan_deaths(gates, 3)
    job = start_oracle(start_job, tmp_path, seed, "--ps_replicas=2")
    kills = 3
    while kills and job.process.poll() is None:
        time.sleep(source.uniform(0.5, 2.5))
        processes = job.processes()
        victims = sorted(name for name in processes if name == "master" or name.startswith("ps-"))
        # Not before there is something to lose.
        if victims and any(name.startswith("worker-") for name in processes):
            with contextlib.suppress(psutil.NoSuchProcess):
                processes[source.choice(victims)].send_signal(signal.SIGKILL)
                kills -= 1
    assert_each_sample_applied_once(job, tmp_path / "checkpoints")
