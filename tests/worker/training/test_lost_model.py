"""A model that is lost before its first checkpoint restarts with its initial values, not with what a worker
has trained it to.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.ps.core.buckets import first_map
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire import ps_pb2
from elasticdl.worker.lease_memory import LeaseMemory
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.table_layers import Tables
from elasticdl.worker.trainer import Batch, Parameters, Shard
from elasticdl.worker.training.training_loop import TrainingLoop

SPEC = JobSpec.build(
    job_name="lost", model_zoo="zoo", model_def="m.m.custom_model", training_data="data", num_ps=2
)
BATCH = Batch(
    shard=Shard(lease_id=1, epoch=0, start=0, end=100), position=1, atomic=False, last=False, size=1
)


class Trainer:
    """Of a model with one number, whose gradient is 1."""

    tables = Tables([])
    remarks = ()

    def __init__(self) -> None:
        self.value = 5.0

    def batches(self, *_: Any, **__: Any) -> Iterator[Batch]:
        return iter(())

    def build(self, batch: Batch) -> None: ...

    def parameters(self) -> Parameters:
        return Parameters(trainable={"w": np.array(self.value, np.float32)})

    def state(self) -> dict[str, Any]:
        return {}

    def set_parameters(self, parameters: Parameters) -> None:
        self.value = float(parameters.trainable["w"])

    def optimizer_config(self) -> ps_pb2.OptimizerConfig:
        return ps_pb2.OptimizerConfig(name="sgd", flavor="keras")

    def learning_rate(self, step: int) -> float:
        return 1.0

    def gradients(self, batch: Batch) -> tuple[float, dict[str, Any]]:
        return 0.0, {"w": np.array(1.0, np.float32)}

    def row_gradients(self) -> dict[str, Any]:
        return {}


class Link:
    node = "worker-0"

    def __init__(self, addresses: list[str]) -> None:
        self.memory = LeaseMemory()
        self.stub = SimpleNamespace()
        self.newest = pb.Directive(
            generation=1,
            ps_map=first_map(len(addresses), replicas=1).to_wire(),
            ps_addresses=addresses,
        )
        self.serial = 0

    def directive(self) -> pb.Directive:
        return self.newest

    def latest(self) -> tuple[int, pb.Directive]:
        return self.serial, self.newest

    def tell(self, **changes: Any) -> None:
        changed = pb.Directive()
        changed.CopyFrom(self.newest)
        for name, value in changes.items():
            setattr(changed, name, value)
        self.newest, self.serial = changed, self.serial + 1

    def nudge(self) -> None: ...

    def wait(self, *_: Any) -> None: ...


@pytest.fixture
def loop(table_servers: tuple[list[Any], list[str]]) -> Iterator[TrainingLoop]:
    link: Any = Link(table_servers[1])
    trainer: Any = Trainer()
    nothing: Any = []
    made = TrainingLoop(
        link=link, spec=SPEC, trainer=trainer, training=nothing, validation=None, token="token"
    )
    yield made
    made._stop_reading()
    assert made._model is not None
    made._model.close()
    made._reporter.close()


def train(loop: TrainingLoop, *positions: int) -> None:
    for position in positions:
        loop._prepare(BATCH)
        assert isinstance(loop._model, ServedModel)
        loop._model.train(BATCH, position=position, batches=position)


def lose_everything(stores: list[Any], generation: int) -> None:
    for store in stores:
        store.close(generation)
        store.peers.update_routes(Routes(map=first_map(2, replicas=1)))
        store.open()


def pulled(loop: TrainingLoop) -> float:
    assert isinstance(loop._model, ServedModel)
    loop._model.thaw()
    trainer: Any = loop._trainer
    return float(trainer.value)


def test_lost_model_restarts_with_initial_values(
    loop: TrainingLoop, table_servers: tuple[list[Any], list[str]]
) -> None:
    link: Any = loop._link
    loop._step()
    train(loop, 1, 2, 3)
    assert pulled(loop) == 2.0
    for generation in (2, 3):
        lose_everything(table_servers[0], generation)
        link.tell(generation=generation)
        loop._step()
        train(loop, 1)
        assert pulled(loop) == 4.0


def test_with_a_checkpoint_nothing_is_kept_of_it(
    loop: TrainingLoop, table_servers: tuple[list[Any], list[str]]
) -> None:
    link: Any = loop._link
    loop._step()
    train(loop, 1)
    assert isinstance(loop._model, ServedModel)
    assert loop._model.beginning is not None
    link.tell(saved=True)
    loop._step()
    assert loop._model.beginning is None
