"""Jobs of the model `zoo/oracle`, and what their parameters say: sample i adds 1 to row i and to each dense counter.

The trace is read from the newest checkpoint with the ordinary reader of checkpoints. The ledger and the audit have no
part in it, so it tells when those are wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.ps.checkpoint.opened_checkpoint import open_snapshot
from elasticdl.ps.checkpoint.resharding import TRAINABLE

COUNTERS = 12
BATCH_SIZE = 8


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
