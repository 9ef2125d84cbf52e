"""Training that was saved and restored goes on to the last bit as if it had not been."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn, optim
from torch.optim import lr_scheduler

from elasticdl.errors import UserError
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Parameters, Shard


def batches(count: int) -> list[Batch]:
    torch.manual_seed(1)
    shard = Shard(lease_id=1, epoch=0, start=0, end=8)
    return [
        Batch(
            shard=shard,
            position=8,
            atomic=False,
            last=True,
            size=8,
            features=torch.randn(8, 3),
            labels=torch.randint(0, 2, (8,)),
        )
        for _ in range(count)
    ]


def with_schedule(parameters: Any) -> Any:
    optimizer = optim.SGD(parameters, lr=0.1, momentum=0.9)
    return optimizer, lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=30)


def of_two_groups(model: Any) -> Any:
    return optim.Adam(
        [{"params": [model[0].weight], "lr": 0.1}, {"params": [model[0].bias, *model[2].parameters()]}]
    )


OPTIMIZERS: list[Callable[..., Any]] = [
    lambda p: optim.SGD(p, lr=0.1),
    lambda p: optim.SGD(p, lr=0.1, momentum=0.9),
    lambda p: optim.Adam(p, lr=0.1, amsgrad=True),
    lambda p: optim.AdamW(p, lr=0.1),
    lambda p: optim.Adagrad(p, lr=0.1),
    lambda p: optim.RMSprop(p, centered=True, momentum=0.5),
    lambda p: optim.Adadelta(p),
    lambda p: optim.Adamax(p),
    lambda p: optim.NAdam(p),
    lambda p: optim.RAdam(p),
    lambda p: optim.ASGD(p),
    lambda p: optim.Rprop(p),
    with_schedule,
    of_two_groups,
]


def loss(labels: Any, predictions: Any) -> Any:
    return nn.functional.cross_entropy(predictions, labels)


def trainer_of(optimizer: Callable[..., Any], make_definition: Any) -> TorchTrainer:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, momentum=None, affine=False), nn.Linear(4, 2))
    return TorchTrainer(model, make_definition(loss=loss, optimizer=optimizer))


def through_a_file(arrays: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    names = list(arrays)
    np.savez(folder / "saved.npz", **{str(i): arrays[name] for i, name in enumerate(names)})
    with np.load(folder / "saved.npz", allow_pickle=False) as saved:
        return {name: saved[str(i)] for i, name in enumerate(names)}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("trained_before", [0, 5])
def test_going_on(
    optimizer: Callable[..., Any], trained_before: int, make_definition: Any, tmp_path: Path
) -> None:
    given = batches(8)
    first = trainer_of(optimizer, make_definition)
    for batch in given[:4]:
        first.train(batch)
    values, state = first.parameters(), first.optimizer_state()
    expected = [first.train(batch) for batch in given[4:]]

    second = trainer_of(optimizer, make_definition)
    # Also a process that has trained on meanwhile, and goes back.
    for batch in given[:trained_before]:
        second.train(batch)
    second.set_parameters(Parameters(trainable=values.trainable, state=values.state))
    second.set_optimizer_state(through_a_file(state, tmp_path))
    assert [second.train(batch) for batch in given[4:]] == expected
    for name, value in first.parameters().trainable.items():
        np.testing.assert_array_equal(second.parameters().trainable[name], value)


def test_of_another_optimizer(make_definition: Any) -> None:
    adam = trainer_of(OPTIMIZERS[2], make_definition)
    (batch,) = batches(1)
    adam.train(batch)
    with pytest.raises(UserError, match="is of the optimizer Adam, and the model definition has SGD"):
        trainer_of(OPTIMIZERS[0], make_definition).set_optimizer_state(adam.optimizer_state())


def test_optimizer_state_that_cannot_be_saved_is_rejected(make_definition: Any) -> None:
    trainer = trainer_of(lambda p: optim.LBFGS(p), make_definition)
    for batch in batches(2):
        trainer.train(batch)
    with pytest.raises(UserError, match="LBFGS keeps list"):
        trainer.optimizer_state()
