"""Spans on the wire, as a collector gets them."""

from __future__ import annotations

import logging

import pytest

import elasticdl.master.tracing.otlp_sink as otlp
from elasticdl.master.tracing.span import FinishedSpan, span_id, trace_id
from tests.mlflow_server import free_port
from tests.otlp_receiver import attributes, collector


def test_collector_gets_ids_times_and_attributes() -> None:
    with collector() as received:
        sink = otlp.OtlpSink(received.url, trace_id=trace_id("run"), version="2")
        job = span_id("run", "attempt 1")
        epoch = sink.new_id()
        attrs: dict[str, str | int | float] = {"elasticdl.epoch": 3, "elasticdl.dataset": "training"}
        sink.add(FinishedSpan(name="epoch", span_id=epoch, parent_id=job, start=10, end=20, attributes=attrs))
        sink.add(FinishedSpan(name="job", span_id=job, parent_id=None, start=5, end=30, error="no room"))
        sink.close(30.0)
    (first,), (last,) = received.named("epoch"), received.named("job")
    assert {span["traceId"].lower() for span in received.spans} == {f"{trace_id('run'):032x}"}
    assert (first["spanId"], first["parentSpanId"]) == (f"{epoch:016x}", f"{job:016x}")
    assert (last["spanId"], last.get("parentSpanId", "")) == (f"{job:016x}", "")
    assert (int(first["startTimeUnixNano"]), int(first["endTimeUnixNano"])) == (10, 20)
    assert attributes(first) == attrs
    assert last["status"]["message"] == "no room"
    assert attributes(received.resources[0])["service.name"] == "elasticdl"
    assert sink.report() == ()


def test_spans_that_are_refused_are_counted() -> None:
    with collector(status=400) as refusing:
        sink = otlp.OtlpSink(f"{refusing.url}/v1/traces", trace_id=1, version="2")
        for number in range(3):
            sink.add(FinishedSpan(name="shard", span_id=number + 1, parent_id=9, start=1, end=2))
        sink.close(30.0)
    assert sink.report() == ("OpenTelemetry: 3 spans were not recorded",)


def test_absent_collector_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    sink = otlp.OtlpSink(url, trace_id=1, version="2", timeout_seconds=0.1)
    with caplog.at_level(logging.WARNING):
        # More than one request takes.
        for number in range(600):
            sink.add(FinishedSpan(name="shard", span_id=number + 1, parent_id=9, start=1, end=2))
        sink.close(30.0)
    assert sink.report() == ("OpenTelemetry: 600 spans were not recorded",)
    assert [record.message.partition(":")[0] for record in caplog.records] == ["Recording spans fails"]
