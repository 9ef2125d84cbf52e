"""What an optimizer of the user's own does in either framework: the same with servers, and from a checkpoint on."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.ps.checkpoint.checkpoint_folders import Manifest, write_manifest
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.trainer import Batch, Trainer

Make = Callable[[], Trainer]


def losses(model: Any, given: list[Batch]) -> list[float]:
    model.prepare(given[0])
    return [model.train(batch, position=batch.position, batches=1) for batch in given]


def losses_alone(trainer: Trainer, given: list[Batch]) -> list[float]:
    return losses(LocalModel(trainer, restore_from="", first_step=0), given)


def assert_servers_do_the_same(make: Make, given: list[Batch], addresses: list[str]) -> None:
    client = ParameterClient(addresses, "token", "worker-0", generation=1, patience_seconds=60)
    served = ServedModel(make(), client, pull_every=1, restore_from="")
    try:
        found = losses(served, given)
    finally:
        served.close()
    np.testing.assert_allclose(found, losses_alone(make(), given), rtol=1e-5)


def assert_goes_on_from_a_checkpoint(make: Make, given: list[Batch], folder: Path, *, rtol: float) -> None:
    """From one in the middle."""
    step = len(given) // 2
    place = folder / f"version-{step}"
    whole = losses_alone(make(), given)
    half = LocalModel(make(), restore_from="", first_step=0)
    losses(half, given[:step])
    files = half.save(place)
    write_manifest(place, Manifest(step=step, files=tuple(files), attributes={}), None)
    second = LocalModel(make(), restore_from=str(place), first_step=step)
    np.testing.assert_allclose(losses(second, given[step:]), whole[step:], rtol=rtol)
