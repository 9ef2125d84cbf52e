"""Which spans a job has, and what belongs to what."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elasticdl.master.commands.shards import LeaseShards
from elasticdl.master.settings import JobSettings
from elasticdl.master.tracing.job_trace import JobTrace
from elasticdl.master.tracing.span import FinishedSpan

PLAN = JobSettings(workers=2, servers=1, batch_size=4, shard_size=8, epochs=2)


class Spans:
    """A sink, and the clock and the numbers of a trace."""

    def __init__(self, folder: Path) -> None:
        self.all: list[FinishedSpan] = []
        self.time = 0
        self._ids = itertools.count(1)
        self._folder = folder

    def add(self, span: FinishedSpan) -> None:
        self.all.append(span)

    def now(self) -> int:
        self.time += 1
        return self.time

    def trace(self) -> JobTrace:
        trace = JobTrace(
            job="digits",
            run="r",
            kind="train",
            file=self._folder / "trace.json",
            sink=self,
            new_id=lambda: next(self._ids),
            now=self.now,
        )
        trace.begin(attempt=1)
        return trace

    def named(self, words: str) -> list[FinishedSpan]:
        return [span for span in self.all if words in span.name]


@pytest.fixture
def spans(tmp_path: Path) -> Spans:
    return Spans(tmp_path)


@pytest.fixture
def job(toy_job: Callable[..., Any]) -> Any:
    job = toy_job(PLAN, sizes={"training": 16})
    job.start_nodes()
    return job


def follow(job: Any, trace: JobTrace) -> None:
    do = job.do

    def traced(command: Any) -> Any:
        result = do(command)
        trace.observe(command, result, job.state.ledger)
        return result

    job.do = traced


def lease(job: Any, worker: str, request_id: int) -> Any:
    return job.do(LeaseShards(dataset="training", worker=worker, count=1, request_id=request_id))


def test_shards_belong_to_epochs_and_epochs_to_the_job(job: Any, spans: Spans) -> None:
    trace = spans.trace()
    follow(job, trace)
    job.run()
    trace.end("succeeded")
    (whole,) = spans.named("job digits")
    epochs = spans.named("training epoch")
    assert [span.name for span in epochs] == ["training epoch 0", "training epoch 1"]
    assert {span.parent_id for span in epochs} == {whole.span_id}
    assert whole.parent_id is None
    for epoch in epochs:
        shards = [span for span in spans.named("shard") if span.parent_id == epoch.span_id]
        ranges = sorted(
            (s.attributes["elasticdl.shard.start"], s.attributes["elasticdl.shard.end"]) for s in shards
        )
        assert (ranges[0][0], ranges[-1][1], epoch.attributes["elasticdl.shards"]) == (0, 16, len(shards))
        assert {shard.attributes["elasticdl.outcome"] for shard in shards} == {"done"}
        assert all(whole.start <= epoch.start <= s.start <= s.end <= epoch.end <= whole.end for s in shards)


def test_shard_of_a_killed_worker_is_returned(job: Any, spans: Spans) -> None:
    trace = spans.trace()
    follow(job, trace)
    (first,) = lease(job, "worker-0", 1)
    job.end("worker-0")
    (shard,) = spans.named("shard")
    assert (shard.attributes["elasticdl.worker"], shard.attributes["elasticdl.outcome"]) == (
        "worker-0",
        "returned",
    )
    assert shard.attributes["elasticdl.shard.end"] == first.end


def test_same_request_again_is_one_span(job: Any, spans: Spans) -> None:
    trace = spans.trace()
    follow(job, trace)
    assert lease(job, "worker-0", 1) == lease(job, "worker-0", 1)
    trace.end("stopped")
    assert len(spans.named("shard")) == 1


def test_resize_lasts_until_all_have_joined(spans: Spans) -> None:
    trace = spans.trace()
    for joined, desired in ((0, 2), (1, 2), (2, 2), (2, 2), (1, 2), (2, 2), (2, 3), (3, 3)):
        trace.observe_workers(joined, desired, step=7)
    sizes = [
        (span.attributes["elasticdl.workers.before"], span.attributes["elasticdl.workers.after"])
        for span in spans.named("resize")
    ]
    assert sizes == [(0, 2), (2, 2), (2, 3)]
    assert all(span.start < span.end for span in spans.named("resize"))


def test_master_that_is_started_again_continues_the_trace(job: Any, spans: Spans) -> None:
    first = spans.trace()
    first.observe(
        LeaseShards(dataset="training", worker="w", count=1, request_id=1),
        lease(job, "worker-0", 1),
        job.state.ledger,
    )
    second = spans.trace()
    follow(job, second)
    job.run()
    second.end("succeeded")
    (whole,) = spans.named("job digits")
    assert whole.start == 1
    assert {span.parent_id for span in spans.named("training epoch")} == {whole.span_id}
    assert spans.named("training epoch 0")[0].start == 2


def test_failed_job_has_its_message(spans: Spans) -> None:
    trace = spans.trace()
    trace.end("failed", "worker-3 cannot start")
    (whole,) = spans.all
    assert whole.error == "worker-3 cannot start"
