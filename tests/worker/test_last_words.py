"""What is known of a worker's batches when it ends: by the servers from its pushes, by the master from its reports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elasticdl.data.reader import BadRange
from elasticdl.jobs.spec import JobSpec
from elasticdl.ps.buckets import first_map
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire import ps_pb2
from elasticdl.worker import loop as loop_module
from elasticdl.worker.loop import TrainingLoop
from elasticdl.worker.memory import ShardMemory
from elasticdl.worker.tables import Tables
from elasticdl.worker.trainer import Batch, Parameters, Shard

SPEC = JobSpec.build(
    job_name="words", model_zoo="zoo", model_def="m.m.custom_model", training_data="data", num_ps=2
)
SHARD = Shard(lease_id=7, epoch=0, start=100, end=130)


def batch(position: int, **more: Any) -> Batch:
    return Batch(
        **{
            "shard": SHARD,
            "position": position,
            "atomic": False,
            "last": position == SHARD.end,
            "size": 10,
            **more,
        }
    )


class Trainer:
    """Of a model with one number. A batch without a label is one that its program fails on."""

    tables = Tables([])
    remarks = ()

    def __init__(self) -> None:
        self.given: Sequence[Batch] = ()
        self.before_each: Callable[[], None] = lambda: None

    def batches(self, *_: Any, **__: Any) -> Iterator[Batch]:
        return iter(self.given)

    def build(self, batch: Batch) -> None: ...

    def callbacks(self, **_: Any) -> Any:
        return SimpleNamespace(fire=lambda *_: None, stop_training=False, empty=True)

    def parameters(self) -> Parameters:
        return Parameters(trainable={"w": np.array(5.0, np.float32)})

    def state(self) -> dict[str, Any]:
        return {}

    def set_parameters(self, parameters: Parameters) -> None: ...

    def optimizer_config(self) -> ps_pb2.OptimizerConfig:
        return ps_pb2.OptimizerConfig(name="sgd", flavor="keras")

    def learning_rate(self, step: int) -> float:
        return 1.0

    def gradients(self, batch: Batch) -> tuple[float, dict[str, Any]]:
        self.before_each()
        if batch.features == "bad":
            raise ZeroDivisionError("division by zero")
        return 0.0, {"w": np.array(1.0, np.float32)}

    def row_gradients(self) -> dict[str, Any]:
        return {}


class Link:
    """A master that takes reports as soon as it `answers`."""

    node = "worker-0"

    def __init__(self, addresses: list[str]) -> None:
        self.memory = ShardMemory()
        self.stub = SimpleNamespace(Report=self._report)
        self.serial = 0
        self.answers = threading.Event()
        self.answers.set()
        self.reported: dict[int, int] = {}
        self.bad: list[tuple[int, int]] = []
        self._moved = threading.Condition()
        self._directive = pb.Directive(
            generation=1, ps_map=first_map(len(addresses), replicas=1).to_wire(), ps_addresses=addresses
        )

    def directive(self) -> pb.Directive:
        return self._directive

    def latest(self) -> tuple[int, pb.Directive]:
        return self.serial, self._directive

    def call(self, method: Callable[[Any], Any], request: Any) -> Any:
        return method(request)

    def nudge(self) -> None:
        with self._moved:
            self._moved.notify_all()

    def wait(self, until: Callable[[], bool], seconds: float | None = None) -> None:
        with self._moved:
            self._moved.wait_for(until, seconds)

    def _report(self, request: pb.ReportRequest) -> pb.ReportReply:
        self.answers.wait()
        self.bad += [(one.start, one.end) for one in request.bad_records]
        self.reported |= {one.lease_id: one.position for one in request.progress}
        return pb.ReportReply()


@pytest.fixture
def loop(table_servers: tuple[list[Any], list[str]]) -> Iterator[Any]:
    link: Any = Link(table_servers[1])
    trainer: Any = Trainer()
    nothing: Any = []
    made = TrainingLoop(
        link=link, spec=SPEC, trainer=trainer, training=nothing, validation=None, token="token"
    )
    yield made
    link.answers.set()
    made._stop_reading()
    if made._model is not None:
        made._model.close()
    made._reporter.close()


def train(loop: Any, *batches: Batch) -> None:
    directive = loop._link.directive()
    if loop._model is None:
        loop._start_generation(directive)
    for each in batches:
        loop._train(each, directive)


def last_push(servers: tuple[list[Any], list[str]]) -> tuple[int, int, int]:
    found = {store.fence("worker-0", generation=1).last for store in servers[0]}
    (last,) = {(one.lease_id, one.position, one.batches) for one in found}
    return last


def test_servers_know_how_far_a_shard_is(loop: Any, table_servers: tuple[list[Any], list[str]]) -> None:
    train(loop, batch(110), batch(120))
    assert last_push(table_servers) == (7, 120, 2)


def test_servers_know_which_shard_without_order_has_been_begun(
    loop: Any, table_servers: tuple[list[Any], list[str]]
) -> None:
    train(loop, batch(110, atomic=True), batch(120, atomic=True))
    assert last_push(table_servers) == (7, SHARD.start, 2)


def test_servers_know_that_a_shard_without_order_is_gone_through(
    loop: Any, table_servers: tuple[list[Any], list[str]]
) -> None:
    train(loop, batch(110, atomic=True), batch(130, atomic=True))
    assert last_push(table_servers) == (7, SHARD.end, 2)


def test_servers_hear_of_no_place_beyond_what_was_given_up(
    loop: Any, table_servers: tuple[list[Any], list[str]]
) -> None:
    """Where samples could not be read, batches do not lie where the master thinks."""
    train(loop, batch(110))
    loop._ends[SHARD.lease_id] = 115
    train(loop, batch(120))
    assert last_push(table_servers) == (7, 115, 2)


def test_what_cannot_be_read_is_told_before_the_batch_behind_it_counts(
    loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    loop._trainer.before_each = lambda: told.append(len(loop._link.bad))
    flush = loop._reporter.flush

    def answered_if_waited_for() -> None:
        loop._link.answers.set()
        flush()

    monkeypatch.setattr(loop._reporter, "flush", answered_if_waited_for)
    loop._link.answers.clear()
    bad = BadRange(start=100, end=103, where="file:0", reason="zeros")
    train(loop, batch(110, bad=(bad,), size=7))
    assert told == [1]
    assert loop._link.bad == [(100, 103)]


def test_what_was_pushed_is_reported_before_the_program_fails(
    loop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "_LAST_WORDS_SECONDS", 60.0)
    loop._trainer.given = [batch(110), batch(120), batch(130, features="bad")]
    with pytest.raises(ZeroDivisionError):
        loop.run()
    assert loop._link.reported == {7: 120}
    assert loop.lease_id == 7


def test_a_program_that_has_failed_waits_for_nobody(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "_LAST_WORDS_SECONDS", 0.0)
    loop._link.answers.clear()
    loop._trainer.given = [batch(110), batch(120, features="bad")]
    with pytest.raises(ZeroDivisionError):
        loop.run()
    assert loop._link.reported == {}
