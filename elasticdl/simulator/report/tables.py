"""The figures of a comparison as rows: for a terminal, for a pipe, for CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from elasticdl.errors import UserError
from elasticdl.simulator.run_result import RunResult, Summary


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f} s" if value >= 100 else f"{value:.1f} s"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


# Heading, what it means, and how the figure is written.
COLUMNS: tuple[tuple[str, str, Callable[[Summary], str]], ...] = (
    ("policy", "who decides", lambda s: s.policy),
    ("done", "jobs completed of all jobs", lambda s: f"{s.completed}/{s.jobs}"),
    ("stuck", "jobs that never trained", lambda s: str(s.stuck)),
    ("mean", "mean completion time, from submission to the end", lambda s: _seconds(s.mean_completion)),
    ("median", "median completion time", lambda s: _seconds(s.median_completion)),
    ("p99", "99th percentile of the completion time", lambda s: _seconds(s.p99_completion)),
    ("waiting", "mean time until a job trains with all of its roles", lambda s: _seconds(s.mean_waiting)),
    ("first", "mean time until the first worker of a job runs", lambda s: _seconds(s.mean_first_instance)),
    ("used", "utilisation, mean over time", lambda s: f"{100 * s.utilisation:.1f} %"),
    ("goodput", "workers' worth of useful work, mean over time", lambda s: f"{s.goodput:.1f}"),
    ("resizes", "changes of size or place per job", lambda s: f"{s.resizes_per_job:.1f}"),
    ("Jain", "fairness of the sizes at each moment, mean over time", lambda s: _ratio(s.jain)),
    (
        "ρ",
        "completion time over the time with a fair share of the cluster, mean",
        lambda s: _ratio(s.finish_fairness_mean),
    ),
    ("ρ max", "the same, the worst job", lambda s: _ratio(s.finish_fairness_max)),
    ("plan", "mean time of one plan", lambda s: f"{s.plan_milliseconds_mean:.1f} ms"),
)


_CSV_COLUMNS = (
    "workload",
    "policy",
    "job",
    "submitted",
    "first_worker",
    "started",
    "completed",
    "completion_seconds",
    "waiting_seconds",
    "resizes",
    "worker_seconds",
    "done_share",
    "rejected",
)


def print_table(summaries: Sequence[Summary], *, stream: TextIO | None = None) -> None:
    """A table on a terminal, plain lines elsewhere."""
    out = stream or sys.stdout
    workloads = list(dict.fromkeys(summary.workload for summary in summaries))
    if not out.isatty():
        for summary in summaries:
            cells = [f"{heading}={write(summary)}" for heading, _, write in COLUMNS[1:]]
            print(f"{summary.workload} {summary.policy}: {', '.join(cells)}", file=out)
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(file=out)
    for workload in workloads:
        rows = [summary for summary in summaries if summary.workload == workload]
        table = Table(title=workload, title_justify="left", header_style="bold")
        for number, (heading, _, _) in enumerate(COLUMNS):
            table.add_column(heading, justify="left" if number == 0 else "right", no_wrap=True)
        for summary in rows:
            table.add_row(*(write(summary) for _, _, write in COLUMNS))
        console.print(table)


def write_csv(results: Sequence[RunResult], path: Path) -> None:
    """Writes one line per job, policy and workload."""
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(_CSV_COLUMNS)
            for result in results:
                for job in result.jobs:
                    writer.writerow(
                        (
                            result.workload,
                            result.policy,
                            job.name,
                            _plain(job.submitted_at),
                            _plain(job.first_instance_at),
                            _plain(job.started_at),
                            _plain(job.completed_at),
                            _plain(job.completion_seconds),
                            _plain(job.waiting_seconds(result.end)),
                            job.resizes,
                            _plain(job.instance_seconds),
                            f"{job.done_share:.4f}",
                            job.rejected,
                        )
                    )
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:g}" if value < 1e6 else f"{value:.0f}"
