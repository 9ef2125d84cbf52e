"""Metrics of the parameter servers: their reports, and rates of the last seconds.

Servers count from their start on and are polled about once a second. Three reports of each server are kept, the newest,
one some seconds older and one older still: rates, durations of calls and hit ratios are the difference between the
newest and the oldest of them. Counts before the first report that this master has are in no rate: they may cover hours.
The metrics are for display: decisions use them only to detect unresponsive servers (`health/failure_detector.py`) and
to check for room for more replicas, nothing is journaled, and a recovering master polls again. The last reports of a
finished job are kept.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from elasticdl.jobs.status import CallReport, HotId, ServerReport, Staleness, TableReport
from elasticdl.master.servers.bucket_placement import BucketPlacement
from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.core.histogram import quantile
from elasticdl.wire import ps_pb2

_ASK_SECONDS = 1.0
# More servers than this are polled less often: a call costs the master a millisecond or so.
_AT_ONCE = 10
# The platform reports a server that is gone; one that hangs is found by the heartbeat timeout.
_PATIENCE_SECONDS = 5.0
# The period of displayed rates is one to two of these: recent, but without flicker.
_WINDOW_SECONDS = 5.0
# Reports closer together than this give no rates.
_LEAST_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class _Server:
    """Reports of one process."""

    name: str
    newest: ps_pb2.ServerStatusReply
    # By their age, the older one last.
    middle: ps_pb2.Figures
    oldest: ps_pb2.Figures

    @classmethod
    def first(cls, name: str, reply: ps_pb2.ServerStatusReply) -> _Server:
        return cls(name=name, newest=reply, middle=reply.figures, oldest=reply.figures)

    def followed_by(self, name: str, reply: ps_pb2.ServerStatusReply) -> _Server:
        if name != self.name or reply.figures.seconds < self.newest.figures.seconds:
            # Another process: it counts from nothing.
            return _Server.first(name, reply)
        if reply.figures.seconds - self.middle.seconds < _WINDOW_SECONDS:
            return _Server(name=name, newest=reply, middle=self.middle, oldest=self.oldest)
        return _Server(name=name, newest=reply, middle=reply.figures, oldest=self.middle)


class ServerFigures:
    """The newest there is to know of each server."""

    def __init__(self) -> None:
        self._servers: dict[int, _Server] = {}
        # Displays ask more often than servers report.
        self._reports: tuple[ServerReport, ...] | None = None

    def take(self, replies: Mapping[int, ps_pb2.ServerStatusReply], names: Mapping[int, str]) -> None:
        """`names`: of the nodes that are the servers now; what others have reported is forgotten."""
        known = {number: server for number, server in self._servers.items() if number in names}
        for number, reply in replies.items():
            before = known.get(number)
            name = names[number]
            known[number] = before.followed_by(name, reply) if before else _Server.first(name, reply)
        self._servers = known
        self._reports = None

    @property
    def refused(self) -> int:
        """Batches of which nothing was applied: every server gets every batch."""
        return max((server.newest.refused for server in self._servers.values()), default=0)

    @property
    def row_bytes(self) -> int:
        """Returns the bytes of all servers' tables together."""
        return sum(one.bytes for server in self._servers.values() for one in server.newest.figures.tables)

    def reports(self) -> tuple[ServerReport, ...]:
        """Returns the report of each server, in the order of their numbers."""
        if self._reports is None:
            self._reports = tuple(_report(number, server) for number, server in sorted(self._servers.items()))
        return self._reports


class ServedState(Protocol):
    @property
    def placing(self) -> BucketPlacement: ...

    @property
    def outcome(self) -> str: ...


class ProbeListener(Protocol):
    """The node supervisor, as far as parameter servers concern it."""

    async def note_server_probe(self, answered: Mapping[str, bool]) -> None:
        """Notes which servers have answered."""


class ServedJob(Protocol):
    """The part of the master that the metrics use."""

    @property
    def state(self) -> ServedState: ...

    @property
    def figures(self) -> ServerFigures: ...

    @property
    def supervisor(self) -> ProbeListener: ...


class ServerPoller:
    """The clock and the calls."""

    def __init__(self, job: ServedJob, servers: Coordinator) -> None:
        self._job = job
        self._servers = servers
        # Reports are taken in the order in which they were made.
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        while True:
            servers = len(self._job.state.placing.holders())
            await asyncio.sleep(_ASK_SECONDS * max(1.0, servers / _AT_ONCE))
            await self.ask()

    async def ask(self) -> None:
        async with self._turn:
            await self._ask()

    async def _ask(self) -> None:
        holders = self._job.state.placing.holders()
        if not holders or self._job.state.outcome:
            return
        addresses = {number: node.address for number, node in holders.items()}
        replies = await self._servers.status_all(addresses, figures=True, seconds=_PATIENCE_SECONDS)
        names = {number: node.name for number, node in holders.items()}
        # A busy server reports nothing else.
        figures = {number: reply for number, reply in replies.items() if reply.HasField("figures")}
        self._job.figures.take(figures, names)
        await self._job.supervisor.note_server_probe(
            {name: number in replies for number, name in names.items()}
        )


def _report(number: int, server: _Server) -> ServerReport:
    reply, now, before = server.newest, server.newest.figures, server.oldest
    seconds = now.seconds - before.seconds
    before_calls = {one.kind: one.microseconds for one in before.calls}
    before_tables = {one.table: one for one in before.tables}
    calls = {
        one.kind: _report_calls([one.microseconds], [before_calls.get(one.kind)], seconds)
        for one in now.calls
    }
    pulls = [one.microseconds for one in now.calls if one.kind != "push"]
    return ServerReport(
        name=server.name,
        number=number,
        version=reply.version,
        rows=sum(one.rows for one in now.tables),
        size_bytes=now.dense_bytes + sum(one.bytes for one in now.tables),
        dense_bytes=now.dense_bytes,
        parameters=reply.parameters,
        pull=_report_calls(
            pulls, [before_calls.get(one.kind) for one in now.calls if one.kind != "push"], seconds
        ),
        push=calls.get("push") or _report_calls((), (), seconds),
        calls=calls,
        rows_pulled_per_second=_rate(
            sum(one.pulled for one in now.tables) - sum(one.pulled for one in before.tables), seconds
        ),
        rows_pushed_per_second=_rate(
            sum(one.pushed for one in now.tables) - sum(one.pushed for one in before.tables), seconds
        ),
        hit_ratio=_hit_ratio(now.tables, before.tables),
        staleness=_report_staleness(now.staleness, before.staleness),
        non_finite_pushes=now.not_finite,
        rows_rejected=sum(one.refused for one in now.tables),
        tables=tuple(_report_table(one, before_tables.get(one.table), seconds) for one in now.tables),
    )


def _report_table(
    now: ps_pb2.TableFigures, before: ps_pb2.TableFigures | None, seconds: float
) -> TableReport:
    earlier = before or ps_pb2.TableFigures()
    return TableReport(
        name=now.table,
        rows=now.rows,
        size_bytes=now.bytes,
        ids_pulled=now.pulled,
        ids_found=now.found,
        ids_pushed=now.pushed,
        ids_pulled_per_second=_rate(now.pulled - earlier.pulled, seconds),
        ids_pushed_per_second=_rate(now.pushed - earlier.pushed, seconds),
        hit_ratio=_hit_ratio([now], [earlier]),
        rows_rejected=now.refused,
        hot_ids=tuple(HotId(id=one.id, share=round(one.share, 3)) for one in now.hot),
    )


def _rate(count: int, seconds: float) -> float | None:
    """Returns the rate per second; None if too little time has passed."""
    return round(count / seconds, 1) if seconds >= _LEAST_SECONDS else None


def _hit_ratio(now: Iterable[ps_pb2.TableFigures], before: Iterable[ps_pb2.TableFigures]) -> float | None:
    """Returns the hit ratio of the last seconds; without pulls since, that of all the time."""
    given = [(one.pulled, one.found) for one in now]
    pulled, found = sum(one[0] for one in given), sum(one[1] for one in given)
    for earlier in before:
        pulled, found = pulled - earlier.pulled, found - earlier.found
    if pulled <= 0:
        pulled, found = sum(one[0] for one in given), sum(one[1] for one in given)
    return round(found / pulled, 4) if pulled > 0 else None


def _report_calls(
    now: Iterable[ps_pb2.Distribution], before: Iterable[ps_pb2.Distribution | None], seconds: float
) -> CallReport:
    """Quantiles of the last seconds, or if there was none then, of all the time."""
    total: Counter[int] = Counter()
    recent: Counter[int] = Counter()
    microseconds = 0
    for one in now:
        total.update(_found(one))
        microseconds += one.sum
    recent.update(total)
    for earlier in before:
        if earlier is not None:
            recent.subtract(_found(earlier))
    calls = sum(recent.values())
    found = +recent or total
    return CallReport(
        count=sum(total.values()),
        total_seconds=round(microseconds / 1e6, 6),
        per_second=_rate(calls, seconds),
        p50_seconds=_quantile_seconds(found, 0.5),
        p95_seconds=_quantile_seconds(found, 0.95),
        p99_seconds=_quantile_seconds(found, 0.99),
    )


def _quantile_seconds(found: Counter[int], share: float) -> float | None:
    microseconds = quantile(found, share)
    return None if microseconds is None else round(microseconds / 1e6, 7)


def _report_staleness(now: ps_pb2.Distribution, before: ps_pb2.Distribution) -> Staleness:
    count, total = sum(now.counts), now.sum
    recent, recent_sum = count - sum(before.counts), total - before.sum
    if recent > 0:
        count, total = recent, recent_sum
    return Staleness(mean=round(total / count, 2) if count else None, max=now.largest if now.counts else None)


def _found(distribution: ps_pb2.Distribution) -> dict[int, int]:
    return dict(zip(distribution.classes, distribution.counts, strict=True))
