"""Traces of a job for an OpenTelemetry collector (`--otlp_endpoint`).

Without the flag there is no trace, and no library of OpenTelemetry is imported.
"""

from __future__ import annotations

import asyncio
import importlib.util
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.errors import UserError
from elasticdl.extras import install_command
from elasticdl.jobs.spec import JobSpec
from elasticdl.version import VERSION

if TYPE_CHECKING:
    from elasticdl.master.commands.command import Command
    from elasticdl.master.ledger.ledger import Ledger
    from elasticdl.master.tracing.job_trace import JobTrace
    from elasticdl.master.tracing.otlp_sink import OtlpSink

# How long the end of a job waits for a collector that does not answer.
_LAST_SECONDS = 10.0
_FILE = "trace.json"


class Tracing:
    """The trace of one job, or none."""

    def __init__(self, trace: JobTrace | None = None, sink: OtlpSink | None = None) -> None:
        self._trace = trace
        self._sink = sink

    @classmethod
    def of(cls, spec: JobSpec, *, run: str, folder: Path) -> Tracing:
        """Raises `UserError` for a library that is missing."""
        if not spec.tracking.otlp_endpoint:
            return cls()
        check_exporter(spec)
        from elasticdl.master.tracing.job_trace import JobTrace
        from elasticdl.master.tracing.otlp_sink import OtlpSink
        from elasticdl.master.tracing.span import trace_id

        sink = OtlpSink(spec.tracking.otlp_endpoint, trace_id=trace_id(run), version=VERSION)
        trace = JobTrace(
            job=spec.job_name,
            run=run,
            kind=spec.kind,
            file=folder / _FILE,
            sink=sink,
            new_id=sink.new_id,
            now=time.time_ns,
        )
        return cls(trace, sink)

    def __bool__(self) -> bool:
        return self._trace is not None

    def begin(self, *, attempt: int) -> None:
        if self._trace is not None:
            self._trace.begin(attempt=attempt)

    def observe(self, command: Command[Any], result: Any, ledger: Ledger) -> None:
        if self._trace is not None:
            self._trace.observe(command, result, ledger)

    def observe_workers(self, joined: int, desired: int, *, step: int) -> None:
        if self._trace is not None:
            self._trace.observe_workers(joined, desired, step=step)

    async def finish(self, state: str, message: str) -> None:
        """Records the end of the job, and waits until everything is sent, or for some seconds."""
        if self._trace is not None and self._sink is not None:
            self._trace.end(state, message)
            await asyncio.to_thread(self._sink.close, _LAST_SECONDS)

    def report(self) -> tuple[str, ...]:
        return self._sink.report() if self._sink is not None else ()


def check_exporter(spec: JobSpec) -> None:
    """Raises `UserError` unless the libraries for `--otlp_endpoint` are installed."""
    if not spec.tracking.otlp_endpoint:
        return
    try:
        is_there = importlib.util.find_spec("opentelemetry.exporter.otlp.json.http") is not None
    except ModuleNotFoundError:
        is_there = False
    if not is_there:
        raise UserError(
            "--otlp_endpoint needs the exporter of OpenTelemetry, which is not installed.",
            hint=install_command("opentelemetry"),
        )
