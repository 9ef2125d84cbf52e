"""The parameter servers of a job: a table on a terminal, lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from elasticdl.jobs.status import ServerReport, TableReport

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_UNITS = ("B", "kB", "MB", "GB", "TB")
# The number of hot ids of a table that fit on a line.
_HOT_IDS = 3
# A server that finds fewer rows than this has much that is new: no fault, but worth a look.
_MANY_HITS = 0.5


def server_lines(servers: Sequence[ServerReport]) -> list[str]:
    """Returns a line for each server and, below it, for each of its tables."""
    lines = []
    for server in servers:
        staleness = server.staleness
        parts = [
            f"{server.rows:,} rows",
            size(server.size_bytes),
            f"{rate(server.pull.per_second)} pulls/s",
            f"{rate(server.push.per_second)} pushes/s",
            f"{percent(server.hit_ratio)} hits",
            f"staleness {number(staleness.mean)} (max {number(staleness.max)})",
            f"p95 pull {duration(server.pull.p95_seconds)}, push {duration(server.push.p95_seconds)}",
            *refusals(server),
        ]
        lines.append(f"{server.name}: {' | '.join(parts)}")
        for table in server.tables:
            hot = hot_ids(table)
            lines.append(
                f"{server.name}/{table.name}: {table.rows:,} rows | {size(table.size_bytes)}"
                f" | {percent(table.hit_ratio)} hits{f' | hot ids {hot}' if hot else ''}"
            )
    return lines


def server_table(servers: Sequence[ServerReport]) -> RenderableType:
    """Returns the servers, their tables and their rejected pushes, for a terminal."""
    from rich.console import Group
    from rich.text import Text

    shown = _table("server", "rows", "memory", "pulls/s", "pushes/s", "hits", "stale", "pull p95", "push p95")
    for server in servers:
        staleness, hits = server.staleness, server.hit_ratio
        shown.add_row(
            Text(server.name, style="bold"),
            f"{server.rows:,}",
            size(server.size_bytes),
            rate(server.pull.per_second),
            rate(server.push.per_second),
            Text(percent(hits), style="yellow" if hits is not None and hits < _MANY_HITS else "green"),
            f"{number(staleness.mean)} ≤{number(staleness.max)}",
            duration(server.pull.p95_seconds),
            duration(server.push.p95_seconds),
        )
    parts: list[RenderableType] = [shown]
    if any(server.tables for server in servers):
        tables = _table("server", "rows", "memory", "hits")
        tables.add_column("table")
        tables.add_column("hot ids", style="cyan", overflow="fold")
        for server in servers:
            for table in server.tables:
                tables.add_row(
                    server.name,
                    f"{table.rows:,}",
                    size(table.size_bytes),
                    percent(table.hit_ratio),
                    Text(table.name, style="bold"),
                    hot_ids(table),
                )
        parts.append(tables)
    parts += [Text(f"{server.name}: {said}", style="red") for server in servers for said in refusals(server)]
    return Group(*parts)


def _table(first: str, *numbers: str) -> Table:
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    made.add_column(first, no_wrap=True)
    for title in numbers:
        made.add_column(title, justify="right", no_wrap=True)
    return made


def hot_ids(table: TableReport) -> str:
    """The hottest, with the part of the pulls that they are in."""
    return ", ".join(f"{one.id} ({percent(one.share)})" for one in table.hot_ids[:_HOT_IDS])


def refusals(server: ServerReport) -> list[str]:
    found = []
    if server.non_finite_pushes:
        found.append(f"{server.non_finite_pushes:,} pushes refused: not finite")
    if server.rows_rejected:
        found.append(f"{server.rows_rejected:,} rows refused: full")
    return found


def size(count: float) -> str:
    """Formats a number of bytes with about three digits, in units of a thousand."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            return f"{count:,.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("there is always a last unit")


def rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}"


def percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %" if share < 1 else "100 %"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
