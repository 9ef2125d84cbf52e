"""A step of the trainer is a step of Paddle, with optimizers, schedules and embeddings of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import nn

import elasticdl
import elasticdl.paddle
from elasticdl.errors import UserError
from elasticdl.ps.embedding.lookups import Lookups
from elasticdl.ps.storage.local_tables import LocalTables
from elasticdl.worker.model.model_store import LocalModel
from elasticdl.worker.paddle.callbacks import LearningRateScheduler, ReduceLROnPlateau
from elasticdl.worker.paddle.trainer import PaddleTrainer
from elasticdl.worker.trainer import Batch, Parameters, Shard

RANDOM = np.random.default_rng(0)
SPARSE = RANDOM.integers(-(2**62), 2**62, 20)
PLACES = RANDOM.integers(0, 20, (16, 3))
LABELS = RANDOM.normal(size=(16, 1)).astype(np.float32)


def batch_of(features: Any, labels: Any) -> Batch:
    size = len(labels)
    shard = Shard(lease_id=1, epoch=0, start=0, end=size)
    return Batch(
        shard=shard, position=size, atomic=False, last=True, size=size, features=features, labels=labels
    )


def batches(count: int) -> list[Batch]:
    random = np.random.default_rng(1)
    return [
        batch_of(random.normal(size=(8, 3)).astype(np.float32), random.integers(0, 2, 8))
        for _ in range(count)
    ]


def cross_entropy(labels: Any, predictions: Any) -> Any:
    return nn.functional.cross_entropy(predictions, labels)


def model() -> Any:
    paddle.seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1D(5), nn.ReLU(), nn.Dropout(0.3), nn.Linear(5, 2))


OPTIM = paddle.optimizer
Optimizer = Callable[[Any], Any]
OPTIMIZERS: list[Optimizer] = [
    lambda p: OPTIM.SGD(0.1, p),
    lambda p: OPTIM.SGD(OPTIM.lr.CosineAnnealingDecay(0.1, 5), p, weight_decay=0.01),
    lambda p: OPTIM.Momentum(0.1, 0.9, p, weight_decay=0.01),
    lambda p: OPTIM.Adam(0.01, parameters=p, grad_clip=nn.ClipGradByNorm(0.1)),
    lambda p: OPTIM.AdamW(OPTIM.lr.LinearWarmup(0.01, 3, 0.0, 0.01), parameters=p),
    lambda p: OPTIM.Lamb(0.01, parameters=p),
    lambda p: OPTIM.Adam(
        0.01, parameters=[{"params": p[:2], "learning_rate": 0.1}, {"params": p[2:]}], weight_decay=0.01
    ),
]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_here_are_those_of_a_plain_loop(optimizer: Optimizer, make_definition: Any) -> None:
    given = batches(6)
    plain = model()
    made = optimizer(plain.parameters())
    paddle.seed(5)
    expected = []
    for batch in given:
        loss = cross_entropy(paddle.to_tensor(batch.labels), plain(paddle.to_tensor(batch.features)))
        loss.backward()
        made.step()
        made.clear_grad()
        if isinstance(made._learning_rate, OPTIM.lr.LRScheduler):
            made._learning_rate.step()
        expected.append(float(loss))
    trainer = PaddleTrainer(model(), make_definition(loss=cross_entropy, optimizer=optimizer))
    paddle.seed(5)
    assert [trainer.train(batch) for batch in given] == expected
    found = trainer.parameters()
    for name, value in plain.state_dict().items():
        np.testing.assert_array_equal((found.trainable | found.state)[name], value.numpy())


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("trained_before", [0, 5])
def test_saved_training_goes_on_to_the_bit(
    optimizer: Optimizer, trained_before: int, make_definition: Any
) -> None:
    given = batches(8)

    def make() -> PaddleTrainer:
        paddle.seed(0)
        network = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1D(4), nn.Linear(4, 2))
        return PaddleTrainer(network, make_definition(loss=cross_entropy, optimizer=optimizer))

    first = make()
    for batch in given[:4]:
        first.train(batch)
    values, state = first.parameters(), first.optimizer_state()
    expected = [first.train(batch) for batch in given[4:]]
    second = make()
    # Also a process that has trained on meanwhile, and goes back.
    for batch in given[:trained_before]:
        second.train(batch)
    second.set_parameters(Parameters(trainable=values.trainable, state=values.state))
    second.set_optimizer_state(state)
    assert [second.train(batch) for batch in given[4:]] == expected


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (lambda p: OPTIM.Lamb(0.01, parameters=p), "no optimizer Lamb"),
        (lambda p: OPTIM.SGD(0.1, p, weight_decay=paddle.regularizer.L1Decay(0.1)), "no L1Decay"),
        (OPTIMIZERS[-1], "parameter groups that differ in learning_rate"),
        (
            lambda p: OPTIM.AdamW(0.1, parameters=p, apply_decay_param_fun=lambda name: False),
            "apply_decay_param_fun",
        ),
    ],
)
def test_optimizer_unsupported_by_servers_is_rejected(
    optimizer: Optimizer, message: str, make_definition: Any
) -> None:
    trainer = PaddleTrainer(model(), make_definition(loss=cross_entropy, optimizer=optimizer))
    with pytest.raises(UserError, match=message):
        trainer.optimizer_config()


def test_labels_of_a_type_that_the_loss_cannot_take_are_described(make_definition: Any) -> None:
    """Paddle says so on the way back only, with an OSError."""
    trainer = PaddleTrainer(model(), make_definition(loss=cross_entropy, optimizer=OPTIMIZERS[0]))
    (batch,) = batches(1)
    wrong = batch_of(batch.features, batch.labels.astype(np.float32))
    with pytest.raises(UserError, match=r"does not fit labels .*float32.*8.* not implemented for data type"):
        trainer.train(wrong)


def test_a_parameter_with_a_rate_of_its_own_is_refused_by_servers(make_definition: Any) -> None:
    layer = nn.Linear(3, 2, weight_attr=paddle.ParamAttr(learning_rate=0.5))
    trainer = PaddleTrainer(layer, make_definition(loss=cross_entropy, optimizer=OPTIMIZERS[0]))
    with pytest.raises(UserError, match="learning rate of its own"):
        trainer.optimizer_config()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: 3, "returns int"),
        (lambda one, two: 3, "needs 2 arguments"),
        (lambda p: OPTIM.SGD(0.1, nn.Linear(1, 1).parameters()), "other parameters"),
        (lambda p: OPTIM.SGD(OPTIM.lr.ReduceOnPlateau(0.1), p), "ReduceOnPlateau"),
    ],
)
def test_optimizers_that_are_none(function: Any, message: str, make_definition: Any) -> None:
    trainer = PaddleTrainer(model(), make_definition(loss=cross_entropy, optimizer=function))
    with pytest.raises(UserError, match=message):
        trainer.optimizer_config()


def test_callbacks_set_the_rate(make_definition: Any) -> None:
    reducing = ReduceLROnPlateau("loss", factor=0.5, patience=1)
    made = PaddleTrainer(
        model(),
        make_definition(
            loss=cross_entropy,
            optimizer=OPTIMIZERS[0],
            callbacks=lambda: [LearningRateScheduler(lambda epoch, rate: rate * 2), reducing],
        ),
    )
    runner = made.callbacks(leader=True, epochs=3)
    runner.fire("on_epoch_begin", 0, {})
    assert made.learning_rate(0) == pytest.approx(0.2)
    for epoch in range(2):
        runner.fire("on_epoch_end", epoch, {"loss": 1.0})
    assert made.learning_rate(0) == pytest.approx(0.1)


def test_a_callback_cannot_set_the_rate_of_a_schedule(make_definition: Any) -> None:
    made = PaddleTrainer(
        model(),
        make_definition(
            loss=cross_entropy,
            optimizer=OPTIMIZERS[1],
            callbacks=lambda: [LearningRateScheduler(lambda epoch: 0.1)],
        ),
    )
    with pytest.raises(UserError, match="the schedule CosineAnnealingDecay"):
        made.callbacks(leader=True, epochs=3).fire("on_epoch_begin", 0, {})


# -- tables --------------------------------------------------------------------------------------------------


class Network(nn.Layer):
    """Uses one embedding twice."""

    def __init__(self, embedding: Any) -> None:
        super().__init__()
        self.embedding = embedding
        self.out = nn.Linear(24, 1)

    def forward(self, ids: Any) -> Any:
        both = paddle.concat([self.embedding(ids), self.embedding(ids.flip(1))], axis=2)
        return self.out(both.flatten(1))


def squares(labels: Any, predictions: Any) -> Any:
    return nn.functional.mse_loss(predictions, labels)


def pair_of_networks() -> tuple[Network, Network]:
    """With rows in a table, and with the same numbers in Paddle's own embedding."""
    ours = elasticdl.paddle.Embedding(4, initializer="normal", name="rows")
    theirs = nn.Embedding(20, 4)
    with paddle.no_grad():
        theirs.weight.set_value(ours(paddle.to_tensor(SPARSE)))
    networks = Network(ours), Network(theirs)
    networks[1].out.set_state_dict(networks[0].out.state_dict())
    return networks


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: OPTIM.SGD(0.1, p),
        lambda p: OPTIM.Adagrad(0.1, parameters=p),
        lambda p: OPTIM.SGD(0.1, p, grad_clip=nn.ClipGradByGlobalNorm(0.2)),
        lambda p: OPTIM.SGD(0.1, p, grad_clip=nn.ClipGradByValue(0.01)),
    ],
    ids=["sgd", "adagrad", "global-norm", "value"],
)
def test_rows_are_trained_as_paddle_trains_its_own(optimizer: Optimizer, make_definition: Any) -> None:
    losses = []
    ours, theirs = pair_of_networks()
    for network, ids in ((ours, SPARSE[PLACES]), (theirs, PLACES)):
        trainer = PaddleTrainer(network, make_definition(loss=squares, optimizer=optimizer))
        model = LocalModel(trainer, restore_from="", first_step=0)
        batch = batch_of(ids, LABELS)
        model.prepare(batch)
        losses.append([model.train(batch, position=0, batches=1) for _ in range(20)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    assert losses[0][-1] < losses[0][0]


def test_a_plain_loop_trains_rows_with_step() -> None:
    losses = []
    for network, ids in zip(pair_of_networks(), (SPARSE[PLACES], PLACES), strict=True):
        optimizer = OPTIM.Adagrad(0.1, parameters=network.parameters())
        found = []
        for _ in range(10):
            loss = squares(paddle.to_tensor(LABELS), network(paddle.to_tensor(ids)))
            loss.backward()
            elasticdl.paddle.step(optimizer)
            optimizer.clear_grad()
            found.append(float(loss))
        losses.append(found)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)


def test_saved_values_have_the_rows(tmp_path: Any) -> None:
    network, _ = pair_of_networks()
    ids = paddle.to_tensor(SPARSE[PLACES])
    optimizer = OPTIM.Adam(0.1, parameters=network.parameters())
    squares(paddle.to_tensor(LABELS), network(ids)).backward()
    elasticdl.paddle.step(optimizer)
    paddle.save(elasticdl.paddle.state_of(network), str(tmp_path / "model.pdparams"))
    other = Network(elasticdl.paddle.Embedding(4, initializer="normal", name="rows"))
    elasticdl.paddle.load_state(other, paddle.load(str(tmp_path / "model.pdparams")))
    np.testing.assert_array_equal(other(ids).numpy(), network(ids).numpy())


def test_frozen_rows_stay_as_they_are(make_definition: Any) -> None:
    network, _ = pair_of_networks()
    network.embedding.handle.stop_gradient = True
    trainer = PaddleTrainer(network, make_definition(loss=squares, optimizer=OPTIMIZERS[0]))
    batch = batch_of(SPARSE[PLACES], LABELS)
    trainer.build(batch)
    trainer.tables.join(Lookups(source := LocalTables(trainer.tables.specs)))
    _, gradients = trainer.gradients(batch)
    assert sorted(gradients) == ["out.bias", "out.weight"]
    assert trainer.row_gradients() == {}
    assert len(source) == 0


def test_an_exported_table_knows_its_ids_and_no_others(make_definition: Any, tmp_path: Any) -> None:
    network, _ = pair_of_networks()
    trainer = PaddleTrainer(network, make_definition(loss=squares, optimizer=OPTIMIZERS[0]))
    model = LocalModel(trainer, restore_from="", first_step=0)
    batch = batch_of(SPARSE[PLACES], LABELS)
    model.prepare(batch)
    model.train(batch, position=0, batches=1)
    lines = trainer.export(tmp_path / "model", batch)
    assert lines[1].startswith("program: "), lines
    program = paddle.jit.load(str(tmp_path / "model" / "model"))
    program.eval()
    np.testing.assert_allclose(
        program(paddle.to_tensor(batch.features)).numpy(), trainer.predict(batch)["output"], rtol=1e-5
    )
    unknown = paddle.to_tensor(np.array([[1, 2, 2**63 - 1]]))
    bias = trainer.parameters().trainable["out.bias"]
    np.testing.assert_allclose(program(unknown).numpy()[0], bias, atol=1e-6)


def test_sparse_gradients_of_paddles_embedding_go_to_servers(make_definition: Any) -> None:
    paddle.seed(0)
    sparse = PaddleTrainer(
        Network(nn.Embedding(20, 4, sparse=True)), make_definition(loss=squares, optimizer=OPTIMIZERS[0])
    )
    dense = PaddleTrainer(
        Network(nn.Embedding(20, 4)), make_definition(loss=squares, optimizer=OPTIMIZERS[0])
    )
    batch = batch_of(PLACES, LABELS)
    dense.set_parameters(sparse.parameters())
    for name, value in dense.gradients(batch)[1].items():
        np.testing.assert_allclose(sparse.gradients(batch)[1][name], value, rtol=1e-5, atol=1e-7)


def test_a_model_that_changes_its_parameters_is_refused(make_definition: Any) -> None:
    class Clamped(nn.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, features: Any) -> Any:
            with paddle.no_grad():
                self.layer.weight.set_value(self.layer.weight.clip(-0.01, 0.01))
            return self.layer(features)

    trainer = PaddleTrainer(Clamped(), make_definition(loss=cross_entropy, optimizer=OPTIMIZERS[0]))
    with pytest.raises(UserError, match=r"changes parameters while it computes: layer\.weight"):
        trainer.gradients(batches(1)[0])


def test_large_embeddings_that_cannot_be_moved_are_reported(make_definition: Any) -> None:
    made = PaddleTrainer(Network(nn.Embedding(20, 4)), make_definition(), move_embeddings=320)
    (remark,) = made.remarks
    assert "Not moved" in remark
    assert "elasticdl.paddle.Embedding" in remark
    assert not PaddleTrainer(Network(nn.Embedding(20, 4)), make_definition(), move_embeddings=321).remarks
