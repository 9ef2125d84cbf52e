"""The HTML report: one file, no network, light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.simulator.report.charts import bar_chart, charts_of
from elasticdl.simulator.report.drawing import DARK, LIGHT, Drawing, to_svg
from elasticdl.simulator.report.tables import COLUMNS
from elasticdl.simulator.run_result import RunResult

_STYLE = """
:root { color-scheme: light dark; %(light)s --edge: #c9d2dc; --sheet: #f4f6f9; }
@media (prefers-color-scheme: dark) { :root { %(dark)s --edge: #3a4653; --sheet: #0e1319; } }
body { margin: 0; background: var(--sheet); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 940px; margin: 0 auto; padding: 24px 16px 64px; }
h1 { font-size: 26px; margin: 8px 0 0; } h2 { font-size: 19px; margin: 40px 0 8px; }
p.note { color: var(--muted); margin: 4px 0 16px; }
figure { margin: 12px 0; padding: 10px; background: var(--paper); border: 1px solid var(--edge); border-radius: 10px; }
svg { width: 100%%; height: auto; display: block; font-family: system-ui, sans-serif; }
.scroll { overflow-x: auto; background: var(--paper); border: 1px solid var(--edge); border-radius: 10px; }
table { border-collapse: collapse; width: 100%%; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { padding: 7px 10px; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid); }
th:first-child, td:first-child { text-align: left; } tr:last-child td { border-bottom: 0; }
th { color: var(--muted); font-weight: 600; cursor: help; }
details { margin: 8px 0; } summary { cursor: pointer; color: var(--muted); }
"""


def main_charts(results: Sequence[RunResult]) -> list[Drawing]:
    """The charts of one workload, the comparison of policies first."""
    summaries = [result.summary() for result in results]
    drawings = []
    means = [(s.policy, s.mean_completion) for s in summaries if s.mean_completion is not None]
    if means:
        drawings.append(bar_chart("Mean completion time", [(name, value) for name, value in means], "s"))
    waits = [(s.policy, s.mean_waiting) for s in summaries]
    drawings.append(bar_chart("Mean waiting time", waits, "s"))
    return [*drawings, *charts_of(results)]


def write_page(results: Sequence[RunResult], path: Path, *, note: str = "") -> None:
    """Writes the report of all workloads and policies."""
    try:
        path.write_text(render_page(results, note=note), encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None


def render_page(results: Sequence[RunResult], *, note: str = "") -> str:
    style = _STYLE % {
        "light": "".join(f"--{name}:{value};" for name, value in LIGHT.items()),
        "dark": "".join(f"--{name}:{value};" for name, value in DARK.items()),
    }
    workloads = list(dict.fromkeys(result.workload for result in results))
    policies = list(dict.fromkeys(result.policy for result in results))
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Simulation: {escape(', '.join(workloads))}</title><style>{style}</style></head><body><main>",
        "<h1>Simulation</h1>",
        f'<p class="note">{escape(", ".join(workloads))} under {escape(", ".join(policies))}. {escape(note)}</p>',
    ]
    for workload in workloads:
        group = [result for result in results if result.workload == workload]
        parts.append(f"<h2>{escape(workload)}</h2>")
        parts.append(_table(group))
        rejected = [(result.policy, job) for result in group for job in result.jobs if job.rejected]
        if rejected:
            items = "".join(
                f"<li>{escape(job.name)} ({escape(policy)}): {escape(job.rejected)}</li>"
                for policy, job in rejected
            )
            parts.append(f"<details open><summary>Rejected jobs</summary><ul>{items}</ul></details>")
        parts += [f"<figure>{to_svg(drawing)}</figure>" for drawing in main_charts(group)]
    parts.append("</main></body></html>")
    return "\n".join(parts) + "\n"


def _table(results: Sequence[RunResult]) -> str:
    head = "".join(
        f'<th title="{escape(meaning, quote=True)}">{escape(name)}</th>' for name, meaning, _ in COLUMNS
    )
    rows = []
    for result in results:
        summary = result.summary()
        rows.append(
            "<tr>" + "".join(f"<td>{escape(write(summary))}</td>" for _, _, write in COLUMNS) + "</tr>"
        )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
