"""What a master makes of the reports of parameter servers: figures of the last seconds, of those servers there are."""

from __future__ import annotations

import json
from dataclasses import replace

from elasticdl.jobs.json_codec import encode
from elasticdl.jobs.status import HotId as ReportedHotId
from elasticdl.jobs.status import ServerReport, Staleness
from elasticdl.master.kubernetes.status_compaction import shortened
from elasticdl.master.servers.server_metrics import ServerFigures
from elasticdl.ps.core.histogram import Distribution
from elasticdl.ps.server.call_statistics import CallStatistics, report
from elasticdl.ps.server.hot_ids import HotId
from elasticdl.wire import ps_pb2


class Server:
    """A server that counts the given work, by a clock of its own."""

    def __init__(self, name: str = "ps-0") -> None:
        self.name = name
        self.statistics = CallStatistics()
        self.seconds = 1.0

    def works(
        self, *, seconds: float, batches: int, ids: int = 10, found: int = 10, took: int = 1000
    ) -> None:
        counted = self.statistics.of_thread()
        for _ in range(batches):
            for kind in ("pull", "pull_rows", "push"):
                counted.calls[kind].add(took)
            counted.staleness.add(2)
            counted.table("clicks").pulled += ids
            counted.table("clicks").found += found
            counted.table("clicks").pushed += ids
        self.seconds += seconds

    def reply(self) -> ps_pb2.ServerStatusReply:
        found = report(self.statistics, {"clicks": (100, 6400)}, dense_bytes=40, seconds=self.seconds)
        return ps_pb2.ServerStatusReply(version=7, parameters=10, figures=found)


def known(seconds: float | None) -> float:
    assert seconds is not None
    return seconds


def reports_of(figures: ServerFigures, *servers: Server) -> tuple[ServerReport, ...]:
    figures.take(
        {number: server.reply() for number, server in enumerate(servers)},
        {number: server.name for number, server in enumerate(servers)},
    )
    return figures.reports()


def test_of_the_first_report() -> None:
    server = Server()
    server.works(seconds=4.0, batches=100, found=5)
    (found,) = reports_of(ServerFigures(), server)
    assert (found.name, found.number, found.version) == ("ps-0", 0, 7)
    assert (found.rows, found.size_bytes, found.dense_bytes) == (100, 6440, 40)
    assert found.pull.count == 200
    assert found.push == found.calls["push"]
    assert found.hit_ratio == 0.5
    assert found.staleness == Staleness(mean=2.0, max=2)
    assert abs(known(found.push.p95_seconds) - 0.001) < 0.001 / 8
    (table,) = found.tables
    assert (table.name, table.rows, table.ids_pulled, table.ids_found) == ("clicks", 100, 1000, 500)


def test_work_before_first_report_is_in_no_rate() -> None:
    """As of a master that comes back to servers that have been busy for hours."""
    figures, server = ServerFigures(), Server()
    server.works(seconds=10_000.0, batches=10_000)
    (found,) = reports_of(figures, server)
    assert rates(found) == [None] * 7
    # Prompted by something else than the clock: too soon to say.
    server.works(seconds=0.1, batches=5)
    assert rates(reports_of(figures, server)[0]) == [None] * 7
    server.works(seconds=1.9, batches=35)
    assert rates(reports_of(figures, server)[0]) == [40.0, 20.0, 20.0, 200.0, 200.0, 200.0, 200.0]


def rates(found: ServerReport) -> list[float | None]:
    (table,) = found.tables
    return [
        found.pull.per_second,
        found.push.per_second,
        found.calls["push"].per_second,
        found.rows_pulled_per_second,
        found.rows_pushed_per_second,
        table.ids_pulled_per_second,
        table.ids_pushed_per_second,
    ]


def test_of_the_last_seconds() -> None:
    """What was long ago does not count any more."""
    figures, server = ServerFigures(), Server()
    server.works(seconds=60.0, batches=6000, found=0, took=1_000_000)
    reports_of(figures, server)
    for _ in range(12):
        server.works(seconds=1.0, batches=10, found=10, took=1000)
        (found,) = reports_of(figures, server)
    assert found.push.per_second == 10.0
    assert found.hit_ratio == 1.0
    assert known(found.push.p99_seconds) < 0.002
    assert found.push.count == 6120
    assert found.tables[0].ids_pulled == 61_200


def test_a_server_that_has_nothing_to_do() -> None:
    """No rates; how it was when there was something is still reported."""
    figures, server = ServerFigures(), Server()
    server.works(seconds=1.0, batches=10)
    for _ in range(20):
        server.works(seconds=1.0, batches=0)
        (found,) = reports_of(figures, server)
    assert (found.pull.per_second, found.rows_pulled_per_second) == (0.0, 0.0)
    assert found.hit_ratio == 1.0
    assert found.staleness.mean == 2.0
    assert found.push.p50_seconds is not None


def test_of_which_nothing_is_known() -> None:
    (found,) = reports_of(ServerFigures(), Server())
    assert (found.hit_ratio, found.staleness, found.push.p95_seconds) == (
        None,
        Staleness(),
        None,
    )


def test_a_server_that_was_started_again_counts_from_nothing() -> None:
    figures, before = ServerFigures(), Server()
    before.works(seconds=100.0, batches=1000)
    reports_of(figures, before)
    again = Server("ps-2")
    again.works(seconds=1.0, batches=4)
    (found,) = reports_of(figures, again)
    assert (found.name, found.push.count, found.push.per_second) == ("ps-2", 4, None)
    again.works(seconds=1.0, batches=2)
    (found,) = reports_of(figures, again)
    assert (found.push.count, found.push.per_second) == (6, 2.0)


def test_figures_of_removed_server_are_dropped_and_of_unresponsive_one_kept() -> None:
    figures = ServerFigures()
    first, second = Server("ps-0"), Server("ps-1")
    assert [one.name for one in reports_of(figures, first, second)] == ["ps-0", "ps-1"]
    figures.take({0: first.reply()}, {0: "ps-0", 1: "ps-1"})
    assert [one.name for one in figures.reports()] == ["ps-0", "ps-1"]
    figures.take({0: first.reply()}, {0: "ps-0"})
    assert [one.name for one in figures.reports()] == ["ps-0"]


def test_hot_ids_and_refusals() -> None:
    server = Server()
    server.statistics.of_thread().not_finite += 3
    server.statistics.of_thread().table("clicks").refused += 5
    server.statistics.hot = lambda: {"clicks": [HotId(id=-1, share=0.25)]}  # type: ignore[method-assign]
    (found,) = reports_of(ServerFigures(), server)
    assert (found.non_finite_pushes, found.rows_rejected) == (3, 5)
    assert found.tables[0].hot_ids == (ReportedHotId(id=-1, share=0.25),)


def test_pulls_of_both_kinds_are_merged() -> None:
    server = Server()
    counted = server.statistics.of_thread()
    for _ in range(90):
        counted.calls["pull"].add(10)
    for _ in range(10):
        counted.calls["pull_rows"].add(1000)
    (found,) = reports_of(ServerFigures(), server)
    together = Distribution()
    together.merge(counted.calls["pull"])
    together.merge(counted.calls["pull_rows"])
    assert found.pull.count == sum(together.counts) == 100
    assert known(found.pull.p50_seconds) < 0.00002 < 0.0008 < known(found.pull.p95_seconds)


def test_shortened_where_there_is_little_room() -> None:
    server = Server()
    server.statistics.hot = lambda: {"clicks": [HotId(id=-1, share=0.25)]}  # type: ignore[method-assign]
    whole = reports_of(ServerFigures(), server)
    length = len(json.dumps(encode(whole)))
    assert shortened(whole, length) == whole
    cooled = shortened(whole, length - 1)
    assert cooled == (replace(whole[0], tables=(replace(whole[0].tables[0], hot_ids=()),)),)
    assert shortened(whole, 10) == (replace(whole[0], tables=()),)


def test_described_again_only_when_there_is_news() -> None:
    """A display asks several times a second."""
    figures, server = ServerFigures(), Server()
    before = reports_of(figures, server)
    assert figures.reports() is before
    server.works(seconds=1.0, batches=10)
    assert reports_of(figures, server)[0].push.count == 10
