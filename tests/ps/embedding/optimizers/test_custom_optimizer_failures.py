"""An optimizer of the user's own that fails while it updates: it is reported to the job once, in the user's own
terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elasticdl
from elasticdl.errors import UserError
from elasticdl.platforms.platform import EXIT_DEFINITION_ERROR
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.ps.core.array_bodies import mask_of, pack
from elasticdl.ps.core.buckets import BUCKETS, first_map
from elasticdl.ps.core.server_errors import NotReady, from_status_number
from elasticdl.ps.embedding.custom_optimizer import to_config
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, Push, ServerSettings
from elasticdl.wire import ps_pb2
from elasticdl.wire.frames import Connection, connect
from tests.ps.processes import Job

ALL = mask_of(range(BUCKETS))


class Picky(elasticdl.Optimizer):
    """Does not like large gradients."""

    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        if (gradient > 5).any():
            raise RuntimeError("my own words")
        return value - learning_rate * gradient


PICKY = to_config(Picky())


class Primary:
    """The store of one of two servers; the other one gets every entry and never answers."""

    def __init__(self, **settings: Any) -> None:
        self.errors: list[UserError] = []
        self.store = Store(ServerSettings(**settings), failed=self.errors.append)
        self.store.close(1)
        self.store.peers.update_routes(Routes(map=first_map(2, replicas=2)))
        self.store.open()
        initial = InitialModel(trainable={"x": np.ones(2, np.float32)}, state={}, optimizer=PICKY)
        self.store.state.bucket_store.initialize(ALL, initial)

    def push(self, number: float, sequence: int = 1) -> None:
        push = Push(
            worker="worker-0",
            sequence=sequence,
            version=0,
            learning_rate=0.5,
            gradients={"x": np.full(2, number, np.float32)},
            generation=1,
        )
        self.store.workers.begin_push(push, message=ps_pb2.PushRequest())

    @property
    def replicated(self) -> int:
        return sum(outbox.last for outbox in self.store.state.peers.outboxes.values())


def test_failed_push_is_not_replicated() -> None:
    primary = Primary()
    primary.push(1.0)
    assert primary.replicated == 1
    with pytest.raises(UserError, match="my own words"):
        primary.push(9.0, sequence=2)
    assert primary.replicated == 1
    assert len(primary.errors) == 1


def test_half_applied_state_is_never_served() -> None:
    primary = Primary()
    with pytest.raises(UserError, match="my own words"):
        primary.push(9.0)
    calls: list[Callable[[], Any]] = [
        lambda: primary.push(1.0, sequence=2),
        lambda: primary.store.workers.pull(lambda pulled: pulled, generation=1),
        lambda: primary.store.master.freeze("barrier", generation=1),
    ]
    for call in calls:
        with pytest.raises(UserError, match="my own words"):
            call()
    assert len(primary.errors) == 1


def test_gradients_that_are_applied_for_a_checkpoint() -> None:
    primary = Primary(grads_to_wait=2)
    primary.push(9.0)
    with pytest.raises(UserError, match="my own words"):
        primary.store.master.freeze("barrier", generation=1, flush=True)
    assert "my own words" in str(primary.errors)
    assert primary.replicated == 1


ZOO = """
import elasticdl


class Picky(elasticdl.Optimizer):
    def update(self, value, gradient, slots, learning_rate, step):
        if (gradient > 5).any():
            raise RuntimeError("my own words")
        return value - learning_rate * gradient
"""


def named(module: str) -> ps_pb2.OptimizerConfig:
    return ps_pb2.OptimizerConfig(name=f"{module}:Picky", flavor="python")


@pytest.fixture
def job(tmp_path: Path, token: str) -> Iterator[Job]:
    zoo = tmp_path / "own_zoo"
    zoo.mkdir()
    (zoo / "pickiness.py").write_text(ZOO)
    job = Job(tmp_path, token, job={"model_zoo": str(zoo)})
    job.master.want(generation=1)
    yield job
    job.close()


def assert_failed_once(job: Job, *words: str) -> None:
    failed = job.master.failed.get(timeout=60)
    assert (failed.node, failed.kind) == ("ps-0", "definition")
    for word in words:
        assert word in failed.message
    assert "elasticdl/ps" not in failed.message
    assert job.process.wait(60) == EXIT_DEFINITION_ERROR
    assert job.master.failed.empty()


def test_a_primary_reports_it_and_ends(job: Job) -> None:
    client: ParameterClient = job.client(1)
    client.initialize({"x": np.ones(2, np.float32)}, {}, named("pickiness"))
    with pytest.raises(UserError, match="The optimizer Picky failed on x") as raised:
        client.push({"x": np.full(2, 9, np.float32)}, learning_rate=0.5)
    assert "pickiness.py" in str(raised.value)
    assert_failed_once(job, "The optimizer Picky failed on x", "pickiness.py", "RuntimeError: my own words")


def tell(connection: Connection, position: int, body: bytes = b"", **what: Any) -> int:
    """As a primary does, by a map that the other one has not seen yet; returns the status."""
    entry = ps_pb2.Entry(position=position, version=9, buckets=pack(ALL), **what)
    connection.send(call_codec.ENTRY, entry.SerializeToString(), [body])
    return connection.receive().kind


def as_primary(address: str, token: str) -> Connection:
    connection = connect(address, token)
    hello = ps_pb2.ReplicateHello(server=1, incarnation="other", generation=1)
    connection.send(call_codec.REPLICATE, hello.SerializeToString())
    assert connection.receive().kind == 0
    return connection


def test_a_backup_reports_it_and_ends(job: Job, token: str) -> None:
    """As one whose file, or whose NumPy, is another than its primary's."""
    # Nothing can be sent before it is ready.
    job.client(1).pull()
    connection = as_primary(job.request.address, token)
    values = call_codec.write_arrays({"trainable": {"x": np.ones(2, np.float32)}}, {"x": 0})
    initialize = ps_pb2.InitializeRequest(generation=1, optimizer=named("pickiness"), arrays=values[0])
    assert tell(connection, 1, b"".join(values[1]), initialize=initialize) == 0
    gradients = call_codec.write_arrays({"trainable": {"x": np.full(2, 9, np.float32)}}, {"x": 0})
    push = ps_pb2.PushRequest(worker="w", sequence=1, generation=1, arrays=gradients[0], buckets=pack(ALL))
    status = tell(connection, 2, b"".join(gradients[1]), push=push)
    assert isinstance(from_status_number(status, ""), NotReady)
    assert_failed_once(job, "The optimizer Picky failed on x", "pickiness.py", "RuntimeError: my own words")
    connection.close()


def test_a_replacement_that_has_no_such_module_reports_it_and_ends(job: Job, token: str) -> None:
    job.client(1).pull()
    connection = as_primary(job.request.address, token)
    attributes = '{"optimizer": {"name": "elsewhere:Picky", "flavor": "python", "options": {}}}'
    tell(connection, 1, fill=ps_pb2.Fill(attributes=attributes, parts=1))
    assert_failed_once(job, "The optimizer Picky cannot be had from the model zoo", "no module elsewhere.py")
    connection.close()


def test_callers_of_a_failed_server_go_on(token: str) -> None:
    """They see an unreachable server, and not an error of their own."""
    server = ParameterServer(token=token)
    store = Store(ServerSettings(), number=1)
    store.close(1)
    store.open()
    server.serve(store)
    store.state.invalidate(UserError("something"))
    connection = connect(server.address, token)
    hello = ps_pb2.ReplicateHello(server=0, incarnation="other", generation=1)
    connection.send(call_codec.REPLICATE, hello.SerializeToString())
    answer = connection.receive()
    assert str(from_status_number(answer.kind, answer.head.decode())) == "this server is stopping"
    connection.close()
    server.stop()
