"""The zoo's models on parameter servers learn as much as in a plain Paddle loop, within the noise of their seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import nn
from sklearn import metrics

import elasticdl.paddle
from elasticdl.data.dataset import open_reader
from elasticdl.data.generators.bundled import make_digits
from elasticdl.data.generators.criteo import make_criteo_like
from elasticdl.data.generators.movielens import make_movielens_like
from elasticdl.jobs.mode import Mode
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.worker.definition import load_definition
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.paddle.forward import to_tensors
from elasticdl.worker.paddle.trainer import PaddleTrainer
from elasticdl.worker.trainer import Batch, Shard
from elasticdl.worker.trainer_factory import make_trainer
from tests.worker.clicks import ZOO

SEEDS = (1, 2, 3)
SIZE = 32


def accuracy(labels: Any, predictions: Any) -> float:
    return float((predictions.argmax(1) == labels).mean())


def auc(labels: Any, predictions: Any) -> float:
    return float(metrics.roc_auc_score(labels, predictions))


def root_mean_squared_error(labels: Any, predictions: Any) -> float:
    return float(np.sqrt(np.mean((labels - predictions) ** 2)))


@dataclass(frozen=True, kw_only=True)
class Case:
    """`noise`: how far apart the means over the seeds may be. `reached`: whether a model has learned at all."""

    definition: str
    make: Callable[[Path], object]
    epochs: int
    score: Callable[[Any, Any], float]
    noise: float
    reached: Callable[[float], bool]


def make_clicks(folder: Path) -> None:
    make_criteo_like(folder, rows=4000, test_rows=2000)


def make_ratings(folder: Path) -> None:
    make_movielens_like(folder, rows=6000, test_rows=1500, users=300, movies=200)


CASES = [
    Case(
        definition="digits.paddle_cnn",
        make=make_digits,
        epochs=4,
        score=accuracy,
        noise=0.01,
        reached=lambda found: found >= 0.95,
    ),
    Case(
        definition="criteo.paddle_deepfm",
        make=make_clicks,
        epochs=2,
        score=auc,
        noise=0.01,
        reached=lambda found: found >= 0.7,
    ),
    Case(
        definition="recommendation.paddle_recommendation",
        make=make_ratings,
        epochs=3,
        score=root_mean_squared_error,
        noise=0.04,
        reached=lambda found: found <= 0.9,
    ),
]


class PlainEmbedding(nn.Layer):
    """Paddle's own embedding, over the sorted ids of the whole data set."""

    def __init__(self, ids: Any, rows: Any) -> None:
        super().__init__()
        self.ids = ids
        self.rows = nn.Embedding(len(ids), rows.shape[1], weight_attr=nn.initializer.Assign(rows))

    def forward(self, ids: Any) -> Any:
        return self.rows(paddle.to_tensor(np.searchsorted(self.ids, ids.numpy())))


@dataclass(frozen=True, kw_only=True)
class Data:
    """Batches of one data set, the same for both sides."""

    training: list[list[Batch]]
    testing: list[Batch]

    @classmethod
    def read(cls, trainer: PaddleTrainer, folder: Path, epochs: int) -> Data:
        options: dict[str, Any] = {"batch_size": SIZE, "max_bad_records": 0}

        def batches(part: str, mode: Mode, epoch: int) -> list[Batch]:
            reader = open_reader(str(folder / part))
            shard = Shard(lease_id=1, epoch=epoch, start=0, end=len(reader))
            return list(trainer.batches(reader, [shard], mode=mode, **options))

        return cls(
            training=[batches("train", Mode.TRAINING, epoch) for epoch in range(epochs)],
            testing=batches("test", Mode.EVALUATION, 0),
        )

    def ids(self, model: Any, place: str) -> Any:
        """All ids that a model looks up in one of its tables."""
        seen: list[Any] = []
        layer = dict(elasticdl.paddle.table_layers(model))[place]
        hook = layer.register_forward_pre_hook(lambda _, given: seen.append(np.unique(given[0].numpy())))
        model.eval()
        for batch in (*self.training[0], *self.testing):
            features = to_tensors(batch.features)
            model(**features) if isinstance(features, dict) else model(features)
        hook.remove()
        return np.unique(np.concatenate(seen))


def trainer_of(case: Case, seed: int) -> PaddleTrainer:
    paddle.seed(seed)
    definition = load_definition(
        model_zoo=str(ZOO), model_def=f"{case.definition}.custom_model", names={}, model_params={}
    )
    made = make_trainer(definition)
    assert isinstance(made, PaddleTrainer)
    return made


def learn_plainly(case: Case, data: Data, seed: int) -> float:
    """A loop of Paddle alone: its embeddings, its optimizer."""
    paddle.seed(seed)
    definition = load_definition(
        model_zoo=str(ZOO), model_def=f"{case.definition}.custom_model", names={}, model_params={}
    )
    model = definition.model()
    for place, layer in elasticdl.paddle.table_layers(model):
        ids = data.ids(model, place)
        layer.train()
        setattr(model, place, PlainEmbedding(ids, layer(paddle.to_tensor(ids)).numpy()))
    optimizer = definition.optimizer(model.parameters())

    def predict(batch: Batch) -> Any:
        features = to_tensors(batch.features)
        return model(**features) if isinstance(features, dict) else model(features)

    model.train()
    for epoch in data.training:
        for batch in epoch:
            loss = definition.loss(to_tensors(batch.labels), predict(batch))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
    model.eval()
    return _score(case, data, lambda batch: predict(batch).numpy())


def learn_served(case: Case, data: Data, seed: int, addresses: list[str]) -> float:
    """As in a job: rows and parameters on two servers, pushed and prefetched in the background."""
    trainer = trainer_of(case, seed)
    client = ParameterClient(addresses, "token", "worker-0", generation=1, patience_seconds=60)
    model = ServedModel(trainer, client, pull_every=1, restore_from="", asynchronous=True)
    try:
        model.prepare(data.training[0][0])
        for batch, upcoming in _with_next(batch for epoch in data.training for batch in epoch):
            model.train(batch, position=0, batches=1, upcoming=upcoming)
        model.settle()
        return _score(case, data, lambda batch: trainer.predict(batch)["output"])
    finally:
        model.close()


def _with_next(batches: Iterator[Batch]) -> Iterator[tuple[Batch, Batch | None]]:
    given = list(batches)
    yield from zip(given, [*given[1:], None], strict=True)


def _score(case: Case, data: Data, predict: Callable[[Batch], Any]) -> float:
    labels = np.concatenate([batch.labels for batch in data.testing])
    return case.score(labels, np.concatenate([predict(batch) for batch in data.testing]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.definition)
def test_convergence_is_that_of_plain_paddle(
    case: Case, tmp_path: Path, start_table_servers: Callable[[], Any]
) -> None:
    case.make(tmp_path / "data")
    data = Data.read(trainer_of(case, 0), tmp_path / "data", case.epochs)
    plain = [learn_plainly(case, data, seed) for seed in SEEDS]
    served = []
    for seed in SEEDS:
        with start_table_servers() as (_, addresses):
            served.append(learn_served(case, data, seed, addresses))
    assert case.reached(float(np.mean(plain))), plain
    assert case.reached(float(np.mean(served))), served
    assert np.mean(served) == pytest.approx(np.mean(plain), abs=case.noise), (plain, served)
