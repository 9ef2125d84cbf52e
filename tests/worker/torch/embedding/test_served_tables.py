"""A model with tables on real parameter servers: pushed in the background, counted when applied, prefetched."""

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import elasticdl.torch
from elasticdl.errors import UserError
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard

IDS = torch.randint(-(2**63), 2**63 - 1, (40,), generator=torch.Generator().manual_seed(0))
BROKEN = -1
SHARD = Shard(lease_id=1, epoch=0, start=0, end=800)


def batches(count: int) -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    return [
        Batch(
            shard=SHARD,
            position=16 * (number + 1),
            atomic=False,
            last=False,
            size=16,
            features=IDS[torch.randint(0, 40, (16, 3), generator=generator)],
            labels=torch.randn(16, 1, generator=generator),
        )
        for number in range(count)
    ]


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = elasticdl.torch.Embedding(4, initializer="normal", name="rows")
        self.weights = elasticdl.torch.Embedding(1, name="weights")
        self.out = nn.Linear(12, 1)

    def forward(self, ids: Any) -> Any:
        return self.out(self.embedding(ids).flatten(1)) + self.weights(ids[:, :2]).sum(1)


class Normalized(Network):
    """With moving averages, which a batch changes before its gradients are looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(12)

    def forward(self, ids: Any) -> Any:
        # An id that no other batch has stands for NaN.
        broken = torch.where(ids == BROKEN, float("nan"), 0.0).sum()
        return self.out(self.norm(self.embedding(ids).flatten(1) + broken))


class Masked(Normalized):
    """With numbers that were never finite, and should not be."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.full((3, 3), float("-inf")).triu(1))


@pytest.fixture
def trainer(make_definition: Callable[..., ModelDefinition]) -> Callable[..., TorchTrainer]:
    def make(network: type[Network] = Network) -> TorchTrainer:
        torch.manual_seed(0)
        definition = make_definition(
            loss=lambda labels, predictions: ((labels - predictions) ** 2).mean(),
            optimizer=lambda parameters: torch.optim.Adagrad(parameters, 0.1),
            eval_metrics_fn=dict,
        )
        return TorchTrainer(network(), definition)

    return make


@pytest.fixture
def served(
    table_servers: tuple[list[Any], list[str]], trainer: Callable[..., TorchTrainer]
) -> Iterator[Callable[..., tuple[ServedModel, TorchTrainer]]]:
    made: list[ServedModel] = []

    def make(
        network: type[Network] = Network, *, tolerant: bool = False, **options: Any
    ) -> tuple[ServedModel, TorchTrainer]:
        client = ParameterClient(
            table_servers[1],
            "token",
            "worker-0",
            generation=1,
            patience_seconds=60,
            tolerant=tolerant,
        )
        own = trainer(network)
        made.append(ServedModel(own, client, **{"pull_every": 1, "restore_from": "", **options}))
        return made[-1], own

    yield make
    for model in made:
        model.close()


def train(model: Any, given: list[Batch], applied: Any = None) -> list[float]:
    losses = []
    for number, batch in enumerate(given):
        model.prepare(batch)
        upcoming = given[number + 1] if number + 1 < len(given) else None
        losses.append(
            model.train(
                batch, position=batch.position, batches=number + 1, applied=applied, upcoming=upcoming
            )
        )
    model.settle()
    return losses


def test_without_overlap_it_is_the_model_of_one_worker_alone(
    served: Callable[..., tuple[ServedModel, TorchTrainer]], trainer: Callable[[], TorchTrainer]
) -> None:
    model, own = served()
    alone = LocalModel(reference := trainer(), restore_from="", first_step=0)
    given = batches(12)
    losses = train(model, given)
    np.testing.assert_allclose(losses, train(alone, given), rtol=1e-5)
    with model.whole():
        assert own.tables.own is not None
        assert reference.tables.own is not None
        for table in ("rows", "weights"):
            ids, values = own.tables.own.rows(table)
            expected_ids, expected = reference.tables.own.rows(table)
            np.testing.assert_allclose(ids, expected_ids, rtol=1e-5, atol=1e-7)
            np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-7)
    assert own.tables.own is None


def test_with_overlap_every_batch_counts_once_it_is_applied(
    served: Callable[..., tuple[ServedModel, TorchTrainer]], table_servers: tuple[list[Any], list[str]]
) -> None:
    model, _ = served(asynchronous=True)
    pushes: list[tuple[int, ...]] = []
    given = batches(12)
    losses = train(
        model,
        given,
        applied=lambda loss: pushes.append(tuple(store.master.status().pushes for store in table_servers[0])),
    )
    assert model.is_asynchronous
    assert pushes == [(number, number) for number in range(1, 13)]
    assert model._ahead is not None
    # Two lookups a batch; the first two batches were not foreseen.
    assert (model._ahead.hits, model._ahead.misses) == (2 * 10, 2 * 2)
    again = train(model, given, applied=None)
    assert np.mean(again) < np.mean(losses)


def test_the_next_batch_is_computed_while_the_last_one_is_pushed(
    served: Callable[..., tuple[ServedModel, TorchTrainer]], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, own = served(asynchronous=True)
    given = batches(4)
    train(model, given[:2])
    push, gradients = model._client.push, own.gradients
    pushing, go_on, computed = threading.Event(), threading.Event(), threading.Event()

    def slow_push(*arguments: Any, **more: Any) -> Any:
        pushing.set()
        assert go_on.wait(60)
        return push(*arguments, **more)

    monkeypatch.setattr(model._client, "push", slow_push)
    applied: list[float] = []
    model.train(given[2], position=48, batches=3, applied=applied.append, upcoming=given[3])
    assert pushing.wait(60)

    def seen(batch: Batch) -> Any:
        found = gradients(batch)
        computed.set()
        return found

    monkeypatch.setattr(own, "gradients", seen)
    with futures.ThreadPoolExecutor(1) as pool:
        second = pool.submit(model.train, given[3], position=64, batches=4, applied=applied.append)
        try:
            assert computed.wait(60)
            assert applied == []
        finally:
            go_on.set()
        second.result()
    model.settle()
    assert len(applied) == 2


@pytest.fixture
def asked_rates(monkeypatch: pytest.MonkeyPatch) -> Callable[[TorchTrainer], list[int]]:
    """Has the steps written down that learning rates are asked for."""

    def write_down(own: TorchTrainer) -> list[int]:
        steps: list[int] = []
        rate = own.learning_rate

        def noted(step: int) -> float:
            steps.append(step)
            return rate(step)

        monkeypatch.setattr(own, "learning_rate", noted)
        return steps

    return write_down


@pytest.mark.parametrize("ended", [True, False], ids=["the push has ended", "the push is on its way"])
def test_a_schedule_goes_by_batches_however_long_a_push_takes(
    served: Callable[..., tuple[ServedModel, TorchTrainer]],
    asked_rates: Callable[[TorchTrainer], list[int]],
    monkeypatch: pytest.MonkeyPatch,
    ended: bool,
) -> None:
    model, own = served(asynchronous=True)
    steps = asked_rates(own)
    push, row_gradients = model._client.push, own.row_gradients
    next_is_ready, applied = threading.Semaphore(0), threading.Semaphore(0)

    def slow_push(*arguments: Any, **more: Any) -> Any:
        assert ended or next_is_ready.acquire(timeout=60)
        return push(*arguments, **more)

    def make_ready() -> Any:
        # The rate of this batch has been asked for, and no thread has waited for the push before.
        if len(steps) > 1:
            next_is_ready.release()
        return row_gradients()

    monkeypatch.setattr(model._client, "push", slow_push)
    monkeypatch.setattr(own, "row_gradients", make_ready)
    for number, batch in enumerate(batches(5)):
        model.prepare(batch)
        model.train(
            batch, position=batch.position, batches=number + 1, applied=lambda loss: applied.release()
        )
        if ended:
            assert applied.acquire(timeout=60)
        assert model.step == number + 1
    next_is_ready.release()
    model.settle()
    assert steps == [0, 1, 2, 3, 4]
    assert model.step == 5


def test_values_that_come_late_do_not_set_a_schedule_back(
    served: Callable[..., tuple[ServedModel, TorchTrainer]],
    asked_rates: Callable[[TorchTrainer], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are of before the last push."""
    model, own = served(asynchronous=True)
    given = batches(3)
    model.prepare(given[0])
    steps = asked_rates(own)
    pull, gradients = model._client.pull, own.gradients
    begun, applied = threading.Semaphore(0), threading.Semaphore(0)

    def late_pull(**more: Any) -> Any:
        found = pull(**more)
        assert begun.acquire(timeout=60)
        return found

    def compute(batch: Batch) -> Any:
        # What has been pulled by now is what this batch is computed with.
        if batch is not given[0]:
            begun.release()
        return gradients(batch)

    monkeypatch.setattr(model._client, "pull", late_pull)
    monkeypatch.setattr(own, "gradients", compute)
    for number, batch in enumerate(given):
        model.train(
            batch, position=batch.position, batches=number + 1, applied=lambda loss: applied.release()
        )
        assert applied.acquire(timeout=60)
    begun.release()
    model.settle()
    assert steps == [0, 1, 2]


@pytest.mark.parametrize(("asynchronous", "pulls"), [(False, 3), (True, 4)])
def test_values_are_pulled_every_so_many_batches(
    served: Callable[..., tuple[ServedModel, TorchTrainer]],
    monkeypatch: pytest.MonkeyPatch,
    asynchronous: bool,
    pulls: int,
) -> None:
    """`--get_model_steps`: before the first, the fourth and the seventh, and with prefetch, for the tenth."""
    model, own = served(asynchronous=asynchronous, pull_every=3)
    pull, used = model._client.pull, own.set_parameters
    pulled: list[Any] = []
    given_values: list[Any] = []

    def noted_pull(**more: Any) -> Any:
        pulled.append(more)
        return pull(**more)

    def noted_use(values: Any) -> None:
        given_values.append(values)
        used(values)

    monkeypatch.setattr(model._client, "pull", noted_pull)
    monkeypatch.setattr(own, "set_parameters", noted_use)
    train(model, batches(9))
    assert len(pulled) == pulls
    assert len(given_values) == 3


def test_evaluation_reads_the_snapshot(
    served: Callable[..., tuple[ServedModel, TorchTrainer]], table_servers: tuple[list[Any], list[str]]
) -> None:
    model, own = served(asynchronous=True)
    given = batches(8)
    train(model, given[:4])
    for store in table_servers[0]:
        store.master.freeze("barrier-1", generation=1)
    model.freeze("barrier-1")
    expected = own.predict(given[0])["output"]
    model.thaw()
    train(model, given[4:])
    assert not np.array_equal(own.predict(given[0])["output"], expected)
    rows = sum(store.master.status().rows for store in table_servers[0])
    model.freeze("barrier-1")
    np.testing.assert_array_equal(own.predict(given[0])["output"], expected)
    own.predict(Batch(**{**vars(given[0]), "features": given[0].features + 1}))
    assert sum(store.master.status().rows for store in table_servers[0]) == rows


def test_failed_push_raises_at_the_next_one(
    served: Callable[..., tuple[ServedModel, TorchTrainer]],
) -> None:
    model, _ = served(asynchronous=True)
    given = batches(4)
    counted: list[float] = []
    train(model, given[:2], applied=counted.append)
    bad = Batch(**{**vars(given[2]), "labels": torch.full((16, 1), float("nan"))})
    model.train(bad, position=48, batches=3, applied=counted.append)
    with pytest.raises(UserError, match="not finite"):
        model.settle()
    assert len(counted) == 2


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_batch_that_is_passed_over_leaves_nothing_behind(
    served: Callable[..., tuple[ServedModel, TorchTrainer]],
    table_servers: tuple[list[Any], list[str]],
    caplog: pytest.LogCaptureFixture,
    asynchronous: bool,
) -> None:
    """Neither on the servers nor in the worker, whose moving averages it has spoiled."""
    model, own = served(Normalized, tolerant=True, asynchronous=asynchronous)
    given = batches(8)
    features = given[3].features.clone()
    features[0, 0] = BROKEN
    bad = Batch(**{**vars(given[3]), "features": features})
    counted: list[float] = []
    losses = train(model, [*given[:3], bad, *given[4:]], applied=counted.append)
    assert np.isnan(losses[3])
    assert np.isfinite(losses[:3] + losses[4:]).all()
    # The account of the samples goes on, as if it had been applied.
    assert len(counted) == 8
    assert "out.weight is not finite" in caplog.text
    assert "So far 1 had none." in caplog.text
    for store in table_servers[0]:
        assert store.master.status().refused == 1
        assert store.master.status().version == 7
    model.thaw()
    for value in own.parameters().state.values():
        assert np.isfinite(value).all()


def test_batch_statistics_of_masked_batches_stay_finite(
    served: Callable[..., tuple[ServedModel, TorchTrainer]],
) -> None:
    model, own = served(Masked, tolerant=True)
    train(model, batches(3))
    # As the servers have it.
    model.thaw()
    assert own.parameters().state["norm.running_mean"].any()
