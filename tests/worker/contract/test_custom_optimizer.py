"""Every framework: a definition's optimizer may be the user's own, in NumPy. It does what the framework's Adagrad does:
in one worker, on servers, and continued from a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.checkpoint.checkpoint_folders import Manifest, write_manifest
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.trainer import Batch, Trainer
from tests.worker.losses import losses, losses_alone

Batches = Callable[..., list[Batch]]


@pytest.mark.parametrize("model", ["dense", "table"])
def test_custom_optimizer_alone_equals_that_of_framework(
    trainer: Callable[..., Trainer], batches: Batches, model: str
) -> None:
    own = trainer(model, "own adagrad")
    given = batches(own) * 2
    expected = losses_alone(trainer(model, "adagrad"), given)
    np.testing.assert_allclose(losses_alone(own, given), expected, rtol=1e-5)


def test_custom_optimizer_on_servers_equals_one_worker(
    trainer: Callable[..., Trainer], batches: Batches, table_servers: tuple[list[Any], list[str]]
) -> None:
    own = trainer("table", "own adagrad")
    given = batches(own) * 2
    client = ParameterClient(table_servers[1], "token", "worker-0", generation=1, patience_seconds=60)
    served = ServedModel(trainer("table", "own adagrad"), client, pull_every=1, restore_from="")
    try:
        found = losses(served, given)
    finally:
        served.close()
    np.testing.assert_allclose(found, losses_alone(own, given), rtol=1e-5)


def test_custom_optimizer_continues_from_checkpoint(
    trainer: Callable[..., Trainer], batches: Batches, tmp_path: Path
) -> None:
    own = trainer("table", "own adagrad")
    given = batches(own) * 2
    whole = losses_alone(own, given)
    middle = len(given) // 2
    place = tmp_path / f"version-{middle}"
    half = LocalModel(trainer("table", "own adagrad"), restore_from="", first_step=0)
    losses(half, given[:middle])
    files = half.save(place)
    write_manifest(place, Manifest(step=middle, files=tuple(files), attributes={}), None)
    second = LocalModel(trainer("table", "own adagrad"), restore_from=str(place), first_step=middle)
    np.testing.assert_allclose(losses(second, given[middle:]), whole[middle:], rtol=1e-6)
