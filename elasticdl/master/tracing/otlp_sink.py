"""Sends spans to an OpenTelemetry collector: OTLP over HTTP, as JSON.

A thread of the SDK sends what has ended every few seconds. It reads headers, certificates and limits from the variables
of OpenTelemetry (OTEL_EXPORTER_OTLP_HEADERS, OTEL_BSP_MAX_QUEUE_SIZE).

Failure modes
    The collector is away or refuses spans: a warning, once, and what could not be sent is counted for the report at the
    end of the job. The queue is full: the SDK drops what is new.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from opentelemetry.exporter.otlp.json.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator, RandomIdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from elasticdl.master.tracing.span import FinishedSpan

log = logging.getLogger("elasticdl.master")

# A collector nearby takes milliseconds. The end of a job waits for one that does not answer.
_EXPORT_SECONDS = 5.0
_PATH = "/v1/traces"


class OtlpSink:
    """`endpoint`: the URL of a collector, with or without the path for traces. `timeout_seconds`: of one request, with
    retries.
    """

    def __init__(
        self, endpoint: str, *, trace_id: int, version: str, timeout_seconds: float = _EXPORT_SECONDS
    ) -> None:
        # Failures are reported here, once.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        url = endpoint.rstrip("/")
        self._exporter = _CountingExporter(
            OTLPSpanExporter(url if url.endswith(_PATH) else f"{url}{_PATH}", timeout=timeout_seconds)
        )
        self._ids = _GivenIds(trace_id)
        resource = Resource.create({"service.name": "elasticdl", "service.version": version})
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("elasticdl.master", version)
        self._trace_id = trace_id

    def new_id(self) -> int:
        return self._ids.generate_span_id()

    def add(self, span: FinishedSpan) -> None:
        self._ids.next_span_id = span.span_id
        context = None
        if span.parent_id is not None:
            parent = SpanContext(
                self._trace_id, span.parent_id, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED)
            )
            context = set_span_in_context(NonRecordingSpan(parent))
        made = self._tracer.start_span(
            span.name, context=context, start_time=span.start, attributes=dict(span.attributes)
        )
        if span.error:
            made.set_status(Status(StatusCode.ERROR, span.error))
        made.end(span.end)

    def close(self, timeout_seconds: float) -> None:
        """Sends the rest, and gives up what is not sent by then."""
        closing = threading.Thread(target=self._provider.shutdown, name="close tracing", daemon=True)
        closing.start()
        closing.join(timeout_seconds)

    def report(self) -> tuple[str, ...]:
        """Lines for the end of the job."""
        if not self._exporter.lost:
            return ()
        noun = "span was" if self._exporter.lost == 1 else "spans were"
        return (f"OpenTelemetry: {self._exporter.lost} {noun} not recorded",)


class _GivenIds(IdGenerator):
    """The trace of the job; and for the next span, the id that it has already."""

    def __init__(self, trace_id: int) -> None:
        self._trace_id = trace_id
        self._random = RandomIdGenerator()
        self.next_span_id: int | None = None

    def generate_trace_id(self) -> int:
        return self._trace_id

    def generate_span_id(self) -> int:
        given, self.next_span_id = self.next_span_id, None
        return given if given is not None else self._random.generate_span_id()


class _CountingExporter(SpanExporter):
    def __init__(self, exporter: OTLPSpanExporter) -> None:
        self._exporter = exporter
        self.lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result: SpanExportResult = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001 - an unknown error of the library must not end its thread
            log.debug("Exporting spans: %s", error)
            result = SpanExportResult.FAILURE
        if result is not SpanExportResult.SUCCESS:
            if not self.lost:
                log.warning("Recording spans fails: the collector of --otlp_endpoint does not take them")
            self.lost += len(spans)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
