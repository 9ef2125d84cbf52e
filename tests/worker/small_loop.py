"""The loop of a worker: a model of one number on real parameter servers, and a master that is a few lines of Python."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from elasticdl.jobs.spec import JobSpec
from elasticdl.ps.core.buckets import first_map
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire import ps_pb2
from elasticdl.worker.lease_memory import LeaseMemory
from elasticdl.worker.table_layers import Tables
from elasticdl.worker.trainer import Batch, Parameters, Shard
from elasticdl.worker.training.training_loop import TrainingLoop

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
    """Of a model with one number. On a batch whose features are "bad" its program fails."""

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
        self.memory = LeaseMemory()
        self.stub = SimpleNamespace(Report=self._report, Truncate=self._truncate)
        self.serial = 0
        self.answers = threading.Event()
        self.answers.set()
        self.reported: dict[int, int] = {}
        self.bad: list[tuple[int, int]] = []
        self.given_up: list[tuple[int, int]] = []
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

    def _truncate(self, request: pb.TruncateRequest) -> pb.TruncateReply:
        self.given_up.append((request.lease_id, request.end))
        return pb.TruncateReply()


def make_loop(addresses: list[str]) -> Any:
    link: Any = Link(addresses)
    trainer: Any = Trainer()
    nothing: Any = []
    return TrainingLoop(
        link=link, spec=SPEC, trainer=trainer, training=nothing, validation=None, token="token"
    )


def close(loop: Any) -> None:
    loop._link.answers.set()
    loop._stop_reading()
    if loop._model is not None:
        loop._model.close()
    loop._reporter.close()


def train(loop: Any, *batches: Batch) -> None:
    directive = loop._link.directive()
    if loop._model is None:
        loop._start_generation(directive)
    for each in batches:
        loop._train(each, directive)


def last_push(servers: tuple[list[Any], list[str]]) -> tuple[int, int, int]:
    found = {store.master.fence("worker-0", generation=1).last for store in servers[0]}
    (last,) = {(one.lease_id, one.position, one.batches) for one in found}
    return last
