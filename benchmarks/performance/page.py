"""docs/performance.md: generates its tables and plots from the newest results, which have to support its claims.

In the page, the table and the plot of some benchmarks are between two comments:

    <!-- results: master_shards, one_worker -->
    …
    <!-- end of results -->

A claim in the text is followed by a comment that names its evidence, a ratio to the peer or a figure of ours:

    <!-- claim: master_shards | 1 client, elasticai_api, one a call | ratio >= 3 -->

Failure modes
    `build` raises `Unsupported` if the newest result misses a claim, or if its case was never measured. A test compares
    the page and its plots with the output of `build`, so figures cannot be edited by hand.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence

from benchmarks.performance.run_log import Measured
from benchmarks.report import figure
from elasticdl.simulator.report.drawing import (
    Box,
    Drawing,
    Label,
    Stroke,
    series_colour,
    to_standalone_svg,
)

Results = Mapping[tuple[str, str], Measured]

_BLOCK = re.compile(r"(<!-- results: ([a-z_, ]+) -->\n).*?(<!-- end of results -->)", re.DOTALL)
_CLAIM = re.compile(r"<!-- claim: ([^|\n]+) \| ([^|\n]+) \| (ratio|us) (>=|<=) ([0-9.]+) -->")
_HOLDS = {">=": operator.ge, "<=": operator.le}
_WIDTH, _NAMES, _ROW = 760.0, 330.0, 24.0


class Unsupported(Exception):
    """Claims of the page that the newest results do not support."""


def build(text: str, results: Results) -> tuple[str, dict[str, str]]:
    """The page with its tables rebuilt, and its plots by file name. Raises `Unsupported`."""
    wrong = [problem for claim in _CLAIM.findall(text) if (problem := _problem(claim, results))]
    if wrong:
        raise Unsupported("\n".join(wrong))
    plots: dict[str, str] = {}

    def table(found: re.Match[str]) -> str:
        names = [name.strip() for name in found[2].split(",")]
        rows = [measured for (name, _), measured in sorted(results.items()) if name in names]
        if not rows:
            return f"{found[1]}\nNot measured yet.\n\n{found[3]}"
        lines = [
            "",
            "| benchmark | case | ours | peer | compared | target | |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [f"| {' | '.join(measured.result.cells())} |" for measured in rows]
        compared = [(m.result.case, m.result.us / m.result.peer) for m in rows if m.result.peer]
        if compared:
            file = f"performance-{names[0].replace('_', '-')}.svg"
            plots[file] = to_standalone_svg(ratio_plot(", ".join(names), compared))
            lines += ["", f"![Ratios to the peers: {', '.join(names)}](images/{file})"]
        lines += ["", f"Measured {_origin(rows)}.", ""]
        return found[1] + "\n".join(lines) + "\n" + found[3]

    return _BLOCK.sub(table, text), plots


def ratio_plot(title: str, rows: Sequence[tuple[str, float]]) -> Drawing:
    """Plots a bar for each case: ours as a multiple of the peer, with a line at 1."""
    height = 44.0 + _ROW * len(rows)
    drawing = Drawing(width=_WIDTH, height=height, title=f"{title}: ours, as a multiple of the peer")
    drawing.shapes.append(Label(x=8, y=20, text=drawing.title, size=14, bold=True))
    span = _WIDTH - _NAMES - 70
    largest = max([1.0, *(ratio for _, ratio in rows)])
    for number, (case, ratio) in enumerate(rows):
        y = 34.0 + _ROW * number
        shown = case if len(case) < 52 else f"{case[:50]}…"
        drawing.shapes += [
            Label(x=_NAMES - 8, y=y + 13, text=shown, anchor="end"),
            Box(
                x=_NAMES,
                y=y,
                width=span * ratio / largest,
                height=16,
                colour=series_colour(0),
                hint=f"{case}: {ratio:.3g}",
            ),
            Label(x=_NAMES + span * ratio / largest + 6, y=y + 13, text=f"{ratio:.3g}×", colour="muted"),
        ]
    one = _NAMES + span / largest
    drawing.shapes.append(Stroke(points=[(one, 30.0), (one, height - 6)], colour="series1", dashed=True))
    return drawing


def _problem(claim: tuple[str, str, str, str, str], results: Results) -> str:
    benchmark, case, what, comparison, limit = claim
    measured = results.get((benchmark, case))
    if measured is None:
        return f"{benchmark}, {case}: this was never measured."
    result = measured.result
    if what == "ratio" and not result.peer:
        return f"{benchmark}, {case}: there is no peer to compare with."
    value = result.us / result.peer if what == "ratio" and result.peer else result.us
    if _HOLDS[comparison](value, float(limit)):
        return ""
    return f"{benchmark}, {case}: the page claims {what} {comparison} {limit}, the newest run found {figure(value)}."


def _origin(rows: Sequence[Measured]) -> str:
    """Describes the runs of the rows: date, commit and machine, one entry per run."""
    runs = dict.fromkeys((row.started[:10], row.commit[:12], row.cores, row.load) for row in rows)
    return ", ".join(
        f"{day} at {commit} on {cores} cores with a load average of {load:.1f} before"
        for day, commit, cores, load in runs
    )
