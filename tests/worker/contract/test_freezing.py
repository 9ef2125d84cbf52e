"""Every framework: layers that a callback freezes for some epochs train alike in one worker and on servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.worker.trainer import Batch, Trainer
from tests.worker.contract.framework import Framework
from tests.worker.epochs import EPOCHS, alone, served, train

Batches = Callable[..., list[Batch]]


def freezing_callback(framework: Framework) -> Any:
    class InTheMiddle(framework.Callback):  # type: ignore[name-defined]
        """The body is trained in the second epoch and in the last."""

        def on_train_begin(self, logs: Any = None) -> None:
            framework.set_trained(self.model, False)

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            framework.set_trained(self.model, epoch % 2 == 1)

    return InTheMiddle()


@pytest.fixture
def make(trainer: Callable[..., Trainer], framework: Framework) -> Callable[..., Trainer]:
    def make(kind: str, *, frozen: bool = False, optimizer: str = "decayed") -> Trainer:
        def model() -> Any:
            made = framework.freezable(kind)
            if frozen:
                framework.set_trained(made, False)
            return made

        return trainer(model, optimizer, callbacks=lambda: [freezing_callback(framework)])

    return make


@pytest.mark.parametrize(
    ("kind", "frozen"),
    [("parameters", False), ("table", False), ("table", True)],
    ids=["parameters", "a table", "a frozen table"],
)
def test_freezing_on_servers_equals_freezing_in_one_worker(
    make: Callable[..., Trainer],
    batches: Batches,
    table_servers: tuple[list[Any], list[str]],
    kind: str,
    frozen: bool,
) -> None:
    """With decay or momentum, which would change a variable whose gradient is zero."""
    here, there = (make(kind, frozen=frozen) for _ in range(2))
    batch, *_ = batches(here)
    expected = train(here, alone(here), batch)
    np.testing.assert_allclose(train(there, served(there, table_servers[1]), batch), expected, rtol=1e-4)
    assert len(expected) == 3 * EPOCHS


def test_layer_frozen_at_build_cannot_be_trained_on_servers_later(
    trainer: Callable[..., Trainer],
    batches: Batches,
    framework: Framework,
    table_servers: tuple[list[Any], list[str]],
) -> None:
    network = framework.freezable("parameters")
    framework.set_trained(network, False)
    made = trainer(lambda: network, "decayed")
    batch, *_ = batches(made)
    model = served(made, table_servers[1])
    model.prepare(batch)
    model.train(batch, position=16, batches=1)
    framework.set_trained(network, True)
    with pytest.raises(UserError, match=r"body.*: frozen when the model was made") as caught:
        model.train(batch, position=16, batches=2)
    model.close()
    assert "on_train_begin" in caught.value.hint
