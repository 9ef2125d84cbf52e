"""Shared by the tests of parameter servers: long runs of an optimizer, small stores, servers on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.ps.core.buckets import first_map
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.protocol.results import PullResult, PushResult
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, Push, ServerSettings
from elasticdl.wire import ps_pb2

STEPS = 300
# A matrix, a vector, a scalar.
SHAPES: dict[str, tuple[int, ...]] = {"kernel": (19, 11), "bias": (5,), "scale": ()}


class Run:
    """The same starting values, gradients and learning rates for both sides of a comparison."""

    def __init__(self) -> None:
        chance = np.random.default_rng(7)
        self.initial = {
            name: np.asarray(chance.normal(size=shape), np.float32) for name, shape in SHAPES.items()
        }
        self._seed = 11

    def steps(self) -> Iterator[tuple[int, float, dict[str, Array]]]:
        """(step from 1 on, learning rate, gradients); sizes of gradients vary by orders of magnitude."""
        chance = np.random.default_rng(self._seed)
        for step in range(1, STEPS + 1):
            size = 10.0 ** chance.uniform(-3, 1)
            gradients = {
                name: np.asarray(chance.normal(size=shape) * size, np.float32)
                for name, shape in SHAPES.items()
            }
            yield step, 0.01 / (1 + step / 200), gradients

    def ours(self, name: str, flavor: str, options: Mapping[str, float]) -> dict[str, Array]:
        optimizer = make_optimizer(ps_pb2.OptimizerConfig(name=name, flavor=flavor, options=options))
        values = {parameter: value.copy() for parameter, value in self.initial.items()}
        slots = {parameter: optimizer.slots(parameter, value) for parameter, value in values.items()}
        for step, learning_rate, gradients in self.steps():
            for parameter, gradient in gradients.items():
                optimizer.apply(parameter, values[parameter], gradient, slots[parameter], learning_rate, step)
        return values


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.fixture
def assert_same_values() -> Callable[[Mapping[str, Array], Mapping[str, Array]], None]:
    def check(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> None:
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert ours[name].dtype == theirs[name].dtype
            # Hundreds of steps, each rounded a little differently: some units in the last of seven digits.
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5, atol=2e-6, err_msg=name)

    return check


SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")


class SmallStore:
    """A store with one parameter `x` of two numbers and one state `mean`, and short words for what is done to it."""

    def __init__(self, optimizer: ps_pb2.OptimizerConfig = SGD, **settings: Any) -> None:
        self.store = Store(ServerSettings(**settings))
        self.store.close(1)
        self.store.open()
        self.optimizer = optimizer
        self.initialize()

    def initialize(self) -> bool:
        initial = InitialModel(
            trainable={"x": np.array([1.0, 2.0], np.float32)},
            state={"mean": np.array([0.0])},
            optimizer=self.optimizer,
        )
        return self.store.workers.initialize(initial, generation=1).done_before

    def push(
        self,
        gradient: list[float],
        *,
        worker: str = "worker-0",
        sequence: int = 1,
        version: int = 0,
        **fields: Any,
    ) -> PushResult:
        fields = {"learning_rate": 0.5, "generation": 1, **fields}
        gradients = {"x": np.array(gradient, np.float32)}
        return self.store.workers.push(
            Push(worker=worker, sequence=sequence, version=version, gradients=gradients, **fields)
        )

    def pull(self, *, frozen: str = "", generation: int = 1, known_version: int = -1) -> PullResult:
        def copy(pulled: PullResult) -> PullResult:
            return PullResult(
                initialized=pulled.initialized,
                version=pulled.version,
                unchanged=pulled.unchanged,
                trainable={name: value.copy() for name, value in pulled.trainable.items()},
                state={name: value.copy() for name, value in pulled.state.items()},
            )

        return self.store.workers.pull(
            copy, generation=generation, frozen=frozen, known_version=known_version
        )

    @property
    def x(self) -> list[float]:
        return [float(number) for number in self.pull().trainable["x"]]

    @property
    def version(self) -> int:
        return self.pull().version


@pytest.fixture
def make_store() -> type[SmallStore]:
    return SmallStore


TOKEN = "a token for tests"


class Servers:
    """Parameter servers in threads of this process, behind real ports."""

    def __init__(self, count: int, settings: ServerSettings) -> None:
        self.stores = [Store(settings, number=number) for number in range(count)]
        self.servers = [ParameterServer(token=TOKEN) for _ in range(count)]
        self.clients: list[ParameterClient] = []
        for store, server in zip(self.stores, self.servers, strict=True):
            store.close(1)
            store.peers.update_routes(Routes(map=first_map(count, replicas=1)))
            store.open()
            server.serve(store)

    @property
    def addresses(self) -> list[str]:
        return [server.address for server in self.servers]

    def client(self, worker: str = "worker-0", **options: Any) -> ParameterClient:
        options = {"token": TOKEN, "generation": 1, "patience_seconds": 30.0, **options}
        client = ParameterClient(options.pop("addresses", self.addresses), worker=worker, **options)
        self.clients.append(client)
        return client

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for server in self.servers:
            server.stop()


@pytest.fixture
def start_servers() -> Iterator[Callable[..., Servers]]:
    started: list[Servers] = []

    def start(count: int = 1, **settings: Any) -> Servers:
        started.append(Servers(count, ServerSettings(**settings)))
        return started[-1]

    yield start
    for servers in started:
        servers.close()


@pytest.fixture
def token() -> str:
    return TOKEN
