"""Jobs of the model `zoo/oracle`, and what their parameters say: sample i adds 1 to row i and to each dense counter.

The trace is read from the newest checkpoint with the ordinary reader of checkpoints. The ledger and the audit have no
part in it, so it tells when those are wrong.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from e2e import programs
from e2e.conftest import ROOT, STARTUP, Job
from elasticdl.ps.checkpoint.opened_checkpoint import open_snapshot
from elasticdl.ps.checkpoint.resharding import TRAINABLE

COUNTERS = 12
BATCH_SIZE = 8
OWN_LOOP = "oracle.own_loop"


def write_samples(folder: Path, size: int) -> Path:
    data = folder / "samples.csv"
    data.write_text("sample\n" + "".join(f"{sample}\n" for sample in range(size)))
    return data


def start_counting(
    start_job: Callable[..., Any],
    folder: Path,
    *arguments: str,
    size: int,
    epochs: int,
    seed: int,
    model: str = "model",
    **more: Any,
) -> Any:
    """A job whose newest checkpoint is in `folder/checkpoints`."""
    return start_job(
        "train",
        "--model_zoo=e2e/zoo",
        f"--model_def=oracle.{model}.custom_model",
        f"--training_data={write_samples(folder, size)}",
        f"--job_name=oracle-{seed}",
        f"--minibatch_size={BATCH_SIZE}",
        "--num_minibatches_per_task=4",
        f"--num_epochs={epochs}",
        f"--checkpoint_dir={folder}/checkpoints",
        *arguments,
        environment={
            "ELASTICDL_TEST_SEED": str(seed),
            "ELASTICDL_TEST_SIZE": str(size),
            **more.pop("environment", {}),
        },
        **more,
    )


def start_own_loop(
    start_job: Callable[..., Any], folder: Path, *arguments: str, size: int, epochs: int, seed: int
) -> Any:
    """A job of `oracle.own_loop`, whose values are in `folder/model` in the end."""
    (folder / "model").mkdir(exist_ok=True)
    path = f"PYTHONPATH={STARTUP}:{ROOT}:{ROOT / 'e2e' / 'zoo'}"
    return start_job(
        "train",
        f"--job_command=env {path} {sys.executable} -m {OWN_LOOP} {folder}/model/state_dict.pt",
        f"--job_name=oracle-{seed}",
        *arguments,
        environment={
            "ELASTICDL_TEST_SEED": str(seed),
            "ELASTICDL_TEST_SIZE": str(size),
            "ELASTICDL_TEST_EPOCHS": str(epochs),
        },
    )


class OwnLoopJob(Job):
    """Its workers are processes of the program."""

    def processes(self) -> dict[str, psutil.Process]:
        found = super().processes()
        for process in programs.processes(self):
            with contextlib.suppress(psutil.Error):
                if OWN_LOOP in process.cmdline():
                    found[process.environ()["ELASTICDL_NODE"]] = process
        return found

    def assert_exact(self, *, epochs: int, size: int) -> None:
        programs.assert_exact(self, dataset="_EDL_DEFAULT_TRAINING_DATA", epochs=epochs, size=size)


def find_local_miscounts(exported: Path, *, epochs: int) -> list[str]:
    """The same of `oracle.local_model`, whose counters count batches."""
    import torch

    values = torch.load(exported / "state_dict.pt")
    rows = values.pop("rows.weight")[:, 0]
    wrong = {int(sample): float(rows[sample]) for sample in torch.nonzero(rows != epochs)}
    miscounts = []
    if wrong:
        miscounts.append(f"{len(wrong)} rows differ from {epochs}, of them {dict(list(wrong.items())[:20])}")
    if len({float(value) for value in values.values()}) != 1:
        miscounts.append(f"dense counters differ from each other: {values}")
    return miscounts


def find_miscounts(checkpoints: Path, *, size: int, epochs: int, batches_in_update: int = 1) -> list[str]:
    """What the parameters say against each sample having been applied once in each epoch.

    `batches_in_update`: a synchronous update is the mean of so many batches, and here a whole number of updates.
    """
    with open_snapshot(checkpoints) as found:
        ids, values = found.table("rows").to_numpy()
        counters = {name: batches_in_update * float(found.array(name)[0]) for name in found.arrays[TRAINABLE]}
    applied = np.zeros(size)
    applied[ids] = batches_in_update * values[:, 0]
    wrong = {int(sample): float(applied[sample]) for sample in np.flatnonzero(applied != epochs)}
    miscounts = []
    if wrong:
        miscounts.append(f"{len(wrong)} rows differ from {epochs}, of them {dict(list(wrong.items())[:20])}")
    if list(counters.values()) != [size * epochs] * COUNTERS:
        miscounts.append(f"dense counters differ from {size * epochs}: {counters}")
    return miscounts
