"""Epochs of an elastic training as a loop around its batches, without a master."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

from elasticai_api.errors import ElasticError
from elasticai_api.pytorch.controller import create_elastic_controller
from tests.elasticai_api.pytorch.test_solo import _data, _model, _train

SIZE = 50


def _parts() -> tuple[Any, Any]:
    model = _model()
    return model, torch.optim.Adam(model.parameters(), lr=0.05)


def _loss(model: Any, features: Any, targets: Any) -> Any:
    return torch.nn.functional.mse_loss(model(features), targets)


def _train_by_epochs(
    loader: Any, *, epochs: int = 2, steps: bool = True, **more: Any
) -> tuple[Any, list[Any]]:
    """As a plain loop does. Returns the model, and what it was at the end of each epoch."""
    model, optimizer = _parts()
    controller = create_elastic_controller(
        model=model, optimizer=optimizer, loader=loader, num_epochs=epochs, **more
    )
    ends = []
    for epoch in controller.epochs():
        for features, targets in epoch:
            optimizer.zero_grad()
            loss = _loss(model, features, targets)
            loss.backward()
            if steps:
                optimizer.step()
        ends.append((epoch.number, model.bias.item()))
    return model, ends


def test_plain_loop_trains_as_elastic_run_does() -> None:
    expected, _ = _train(10)
    model, ends = _train_by_epochs(DataLoader(_data(), batch_size=10))
    assert [number for number, _ in ends] == [0, 1]
    assert all(before != after for (_, before), (_, after) in pairwise(ends))
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_several_batches_a_step_train_as_one_large_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, _ = _train_by_epochs(DataLoader(_data(), batch_size=24))
    monkeypatch.setenv("WORKER_NUM", "3")
    model, _ = _train_by_epochs(DataLoader(_data(), batch_size=8))
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_batch_without_optimizer_step_counts_when_next_is_asked_for() -> None:
    expected, _ = _train_by_epochs(DataLoader(_data(), batch_size=10))
    model, _ = _train_by_epochs(DataLoader(_data(), batch_size=10), steps=False)
    torch.testing.assert_close(model.bias, expected.bias)


def test_closure_is_computed_by_optimizer_step() -> None:
    expected, _ = _train_by_epochs(DataLoader(_data(), batch_size=10))
    model, optimizer = _parts()
    controller = create_elastic_controller(
        model=model, optimizer=optimizer, loader=DataLoader(_data(), batch_size=10), num_epochs=2
    )
    losses = []
    for epoch in controller.epochs():
        for features, targets in epoch:

            def closure(features: Any = features, targets: Any = targets) -> Any:
                loss = _loss(model, features, targets)
                loss.backward()
                return loss

            loss = optimizer.step(closure)
            losses.append((controller.last_loss, float(loss.detach())))
    torch.testing.assert_close(model.bias, expected.bias)
    assert all(reported == pytest.approx(computed) for reported, computed in losses)


def test_reported_loss_is_the_last_loss() -> None:
    model, optimizer = _parts()
    controller = create_elastic_controller(
        model=model, optimizer=optimizer, loader=DataLoader(_data(), batch_size=50)
    )
    for epoch in controller.epochs():
        for features, targets in epoch:
            assert controller.last_loss is None
            loss = _loss(model, features, targets)
            loss.backward()
            controller.report_loss(loss)
            optimizer.step()
            assert controller.last_loss == pytest.approx(float(loss.detach()))


def test_schedule_is_stepped_once_a_step_also_if_program_steps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_NUM", "5")
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    controller = create_elastic_controller(
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        loader=DataLoader(_data(), batch_size=10),
        num_epochs=3,
    )
    for epoch in controller.epochs():
        assert controller.steps_per_epoch == 1
        for features, targets in epoch:
            _loss(model, features, targets).backward()
            optimizer.step()
            scheduler.step()
        assert controller.progress == epoch.number + 1
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.125)


def test_shuffled_loader_gives_each_sample_once_in_every_epoch() -> None:
    model, optimizer = _parts()
    dataset = TensorDataset(torch.arange(SIZE))
    controller = create_elastic_controller(
        model=model,
        optimizer=optimizer,
        loader=DataLoader(dataset, batch_size=8, shuffle=True, drop_last=True, num_workers=1),
        num_epochs=2,
    )
    orders = [[index for (batch,) in epoch for index in batch.tolist()] for epoch in controller.epochs()]
    # As many whole batches as a loader that drops the last one has.
    assert [sorted(order) for order in orders] == [list(range(48))] * 2
    assert orders[0] != orders[1]


def test_loop_left_early_is_an_error() -> None:
    model, optimizer = _parts()
    controller = create_elastic_controller(
        model=model, optimizer=optimizer, loader=DataLoader(_data(), batch_size=10)
    )
    epochs = controller.epochs()
    next(iter(next(epochs)))
    with pytest.raises(ElasticError, match="epoch 0 was left before its end"):
        next(epochs)


class _Stream(IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(SIZE))


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (DataLoader(_Stream(), batch_size=5), "is a stream"),
        (
            DataLoader(_data(), batch_size=5, sampler=WeightedRandomSampler([1.0] * SIZE, SIZE)),
            "sampler of its own",
        ),
        (DataLoader(_data(), batch_size=None), "sampler of its own"),
    ],
    ids=["stream", "sampler", "no batches"],
)
def test_loader_that_cannot_be_shared_is_refused(loader: Any, words: str) -> None:
    with pytest.raises(ElasticError, match=words):
        create_elastic_controller(loader=loader)


def test_missing_and_doubled_arguments_are_named() -> None:
    loader = DataLoader(_data(), batch_size=5)
    with pytest.raises(ElasticError, match="Give the loader, or batch_size"):
        create_elastic_controller(batch_size=3, loader=loader)
    with pytest.raises(ElasticError, match="Give the batch_size"):
        create_elastic_controller()
    model, optimizer = _parts()
    controller = create_elastic_controller(batch_size=5, dataset_size=SIZE, model=model, optimizer=optimizer)
    epoch = next(controller.epochs())
    with pytest.raises(ElasticError, match="There is no data set"):
        next(iter(epoch))
