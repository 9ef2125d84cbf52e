"""A worker at a barrier before its first batch has initialized the servers: they wait for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.ps.checkpoint.array_file import NamedArrays
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.ps.core.buckets import first_map
from elasticdl.ps.core.server_errors import NotReady
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire import ps_pb2
from elasticdl.worker.lease_memory import LeaseMemory
from elasticdl.worker.model.served_model import ServedModel
from elasticdl.worker.table_layers import Tables
from elasticdl.worker.trainer import Batch, Parameters
from elasticdl.worker.training.training_loop import TrainingLoop


class Trainer:
    """Of a model without parameters, with a feed that leaves out what is not positive."""

    tables = Tables([])
    remarks = ()

    def batches(self, reader: list[int], shards: Any, **options: Any) -> Iterator[Batch]:
        for shard in shards:
            kept = [sample for sample in reader[shard.start : shard.end] if sample > 0]
            yield Batch(
                shard=shard, position=shard.end, atomic=True, last=True, size=len(kept), features=kept
            )

    def build(self, batch: Batch) -> None:
        assert batch.features

    def parameters(self) -> Parameters:
        return Parameters()

    def set_parameters(self, parameters: Parameters) -> None: ...

    def optimizer_config(self) -> ps_pb2.OptimizerConfig:
        return ps_pb2.OptimizerConfig(name="adagrad", flavor="keras")


class Link:
    """A master that freezes the model as soon as a worker has reached the barrier."""

    node = "worker-0"

    def __init__(self, freeze: Callable[[], None]) -> None:
        self.stub = SimpleNamespace(ReachBarrier=self._reach_barrier)
        self.memory = LeaseMemory()
        self.reached: list[int] = []
        self._freeze = freeze

    def directive(self) -> pb.Directive:
        return pb.Directive(generation=1, barrier_requested=1)

    def call(self, method: Callable[[Any], None], request: Any) -> None:
        method(request)

    def _reach_barrier(self, request: pb.ReachBarrierRequest) -> None:
        self._freeze()
        self.reached.append(request.barrier)


@pytest.fixture
def restored(table_servers: tuple[list[Any], list[str]]) -> tuple[list[Any], list[str]]:
    stores, addresses = table_servers
    optimizer = {"name": "sgd", "flavor": "keras", "options": {}}
    for store in stores:
        store.close(1)
        store.peers.update_routes(Routes(map=first_map(2, replicas=1)))
        store.open(NamedArrays(attributes={"version": 3, "optimizer": optimizer}, groups={"trainable": {}}))
    return stores, addresses


def freeze(stores: list[Any]) -> None:
    for store in stores:
        store.master.freeze("barrier-1", generation=1)


def stand_still(link: Any, addresses: list[str], samples: Any, directive: pb.Directive) -> None:
    """Of a worker of the first generation."""
    trainer: Any = Trainer()
    loop = TrainingLoop(
        link=link,
        spec=JobSpec(kind="train"),
        trainer=trainer,
        training=samples,
        validation=None,
        token="token",
    )
    loop._generation = 1
    client = ParameterClient(addresses, "token", link.node, generation=1, patience_seconds=60)
    loop._model = ServedModel(trainer, client, pull_every=1, restore_from="")
    try:
        loop._reach_barrier(directive)
    finally:
        loop._model.close()
        loop._reporter.close()


@pytest.mark.parametrize("samples", [[1, 2, 3], [0, 0, 0, 0, 5]], ids=["all", "the last"])
def test_after_a_restore(restored: tuple[list[Any], list[str]], samples: list[int]) -> None:
    stores, addresses = restored
    with pytest.raises(NotReady):
        freeze(stores)
    link = Link(lambda: freeze(stores))
    stand_still(link, addresses, samples, link.directive())
    assert link.reached == [1]


def test_not_those_of_a_generation_that_is_over(restored: tuple[list[Any], list[str]]) -> None:
    """They would not take it, and it would be tried again and again until there are others."""
    stores, addresses = restored
    link = Link(lambda: None)
    stand_still(link, addresses, [1], pb.Directive(generation=2, barrier_requested=1))
    assert link.reached == [1]
    with pytest.raises(NotReady):
        freeze(stores)
