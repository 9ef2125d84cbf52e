"""A restored server goes on as if it had never stopped, on as many servers as there are now."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import NamedArrays
from elasticdl.ps.checkpoint.resharding import merge, owners, share
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.optimizers import RULES
from elasticdl.ps.protocol.results import PullResult
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, Push, ServerSettings
from elasticdl.wire import ps_pb2

SIZES = {"a": 40, "b": 30, "c": 20, "d": 11, "e": 1}


class Cluster:
    """Some stores with the shares of one model, without anything between them."""

    def __init__(
        self,
        servers: int,
        config: ps_pb2.OptimizerConfig,
        snapshot: NamedArrays | None = None,
        **settings: Any,
    ):
        chance = np.random.default_rng(1)
        self.model = {name: chance.normal(size=size).astype(np.float32) for name, size in SIZES.items()}
        self.owners = owners({"trainable": {name: a.nbytes for name, a in self.model.items()}}, servers)[
            "trainable"
        ]
        self.stores = [Store(ServerSettings(**settings)) for _ in range(servers)]
        for server, store in enumerate(self.stores):
            store.close(1)
            # Through a copy, as files would make: stores change what they are given.
            part = share(snapshot, server, servers) if snapshot else None
            if part:
                groups = {
                    group: {n: a.copy() for n, a in arrays.items()} for group, arrays in part.groups.items()
                }
                part = NamedArrays(attributes=part.attributes, groups=groups)
            store.open(part)
            self.initialize(server, config)

    def initialize(self, server: int, config: ps_pb2.OptimizerConfig) -> None:
        initial = InitialModel(trainable=self._part(self.model, server), state={}, optimizer=config)
        self.stores[server].workers.initialize(initial, generation=1)

    def _part(self, arrays: dict[str, Array], server: int) -> dict[str, Array]:
        return {name: array for name, array in arrays.items() if self.owners[name] == server}

    def train(self, steps: range) -> None:
        for step in steps:
            chance = np.random.default_rng(step)
            gradients = {name: chance.normal(size=size).astype(np.float32) for name, size in SIZES.items()}
            for server, store in enumerate(self.stores):
                store.workers.push(
                    Push(
                        worker="w",
                        sequence=step + 1,
                        version=store.master.status().version,
                        learning_rate=0.1,
                        gradients=self._part(gradients, server),
                        generation=1,
                    )
                )

    def freeze(self) -> NamedArrays:
        for store in self.stores:
            store.master.freeze("barrier", generation=1)
        return merge([store.master.frozen("barrier") for store in self.stores])

    def values(self) -> dict[str, Array]:
        def copy(pulled: PullResult) -> dict[str, Array]:
            return {name: value.copy() for name, value in pulled.trainable.items()}

        return {
            name: v for store in self.stores for name, v in store.workers.pull(copy, generation=1).items()
        }


ALL = [(flavor, name) for flavor, rules in RULES.items() for name in rules]


@pytest.mark.parametrize(("flavor", "name"), ALL)
@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 3), (3, 1)])
def test_as_if_never_stopped(flavor: str, name: str, before: int, after: int) -> None:
    options = {"momentum": 0.9} if name in ("sgd", "rmsprop") else {}
    config = ps_pb2.OptimizerConfig(name=name, flavor=flavor, options=options)
    stopped = Cluster(before, config)
    stopped.train(range(10))
    restored = Cluster(after, config, stopped.freeze())
    assert {store.master.status().version for store in restored.stores} == {10}
    restored.train(range(10, 20))
    straight = Cluster(1, config)
    straight.train(range(20))
    for parameter, value in straight.values().items():
        np.testing.assert_array_equal(restored.values()[parameter], value)


def test_gradients_that_waited_are_restored_too() -> None:
    config = ps_pb2.OptimizerConfig(name="adam", flavor="keras")
    stopped = Cluster(2, config, grads_to_wait=4)
    stopped.train(range(6))
    restored = Cluster(3, config, stopped.freeze(), grads_to_wait=4)
    restored.train(range(6, 8))
    straight = Cluster(1, config, grads_to_wait=4)
    straight.train(range(8))
    for parameter, value in straight.values().items():
        np.testing.assert_array_equal(restored.values()[parameter], value)


def test_pending_gradients_are_applied_without_waiting_workers() -> None:
    config = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
    stopped = Cluster(1, config, grads_to_wait=4)
    stopped.train(range(6))
    before = stopped.values()
    restored = Cluster(1, config, stopped.freeze())
    assert restored.stores[0].master.status().version == 2
    assert not np.array_equal(restored.values()["a"], before["a"])


def test_other_options_keep_the_slots() -> None:
    stopped = Cluster(1, ps_pb2.OptimizerConfig(name="adam", flavor="keras"))
    stopped.train(range(5))
    snapshot = stopped.freeze()
    changed = ps_pb2.OptimizerConfig(name="adam", flavor="keras", options={"beta_1": 0.5})
    restored = Cluster(1, changed, snapshot).freeze()
    np.testing.assert_array_equal(
        restored.groups["slot:momentum"]["a"], snapshot.groups["slot:momentum"]["a"]
    )
    assert restored.attributes["optimizer"]["options"] == {"beta_1": 0.5}
    assert restored.attributes["optimizer_step"] == 5


def test_another_optimizer_starts_with_new_slots() -> None:
    stopped = Cluster(1, ps_pb2.OptimizerConfig(name="adam", flavor="keras"))
    stopped.train(range(5))
    snapshot = stopped.freeze()
    restored = Cluster(1, ps_pb2.OptimizerConfig(name="adagrad", flavor="keras"), snapshot).freeze()
    np.testing.assert_array_equal(restored.groups["trainable"]["a"], snapshot.groups["trainable"]["a"])
    assert "slot:momentum" not in restored.groups
    assert np.all(restored.groups["slot:accumulator"]["a"] == np.float32(0.1))
    assert (restored.attributes["optimizer_step"], restored.attributes["version"]) == (0, 5)


def test_values_alone_are_enough() -> None:
    """As in a checkpoint of a job without parameter servers, whose optimizer state is the framework's own."""
    cluster = Cluster(1, ps_pb2.OptimizerConfig(name="sgd", flavor="keras"))
    values = {name: value + 1 for name, value in cluster.model.items()}
    foreign = NamedArrays(
        attributes={"step": 7}, groups={"trainable": values, "state": {}, "optimizer": {"0/m": np.ones(3)}}
    )
    restored = Cluster(2, ps_pb2.OptimizerConfig(name="adam", flavor="keras"), foreign)
    np.testing.assert_array_equal(restored.values()["a"], values["a"])
    restored.train(range(2))


def test_checkpoint_of_another_model_is_refused() -> None:
    config = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
    snapshot = Cluster(1, config).freeze()
    other = NamedArrays(
        attributes=snapshot.attributes,
        groups={"trainable": {**snapshot.groups["trainable"], "a": np.ones(41, np.float32)}, "state": {}},
    )
    with pytest.raises(UserError, match=r"another model: a is float32\[41\], in the model float32\[40\]"):
        Cluster(1, config, other)
