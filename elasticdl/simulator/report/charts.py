"""The charts of a report: figures per policy, the cluster over time, completion times, and a timeline of jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from elasticdl.simulator.report.drawing import Box, Drawing, Label, Point, Stroke, series_colour
from elasticdl.simulator.run_result import RunResult, Sample

WIDTH = 860.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 14.0, 46.0, 34.0
# Longer step lines are thinned: more steps than pixels show nothing new.
_MOST_STEPS = 900
_TIMELINE_ROWS = 200


def charts_of(results: Sequence[RunResult]) -> list[Drawing]:
    """Returns the charts for the results of one workload, one per policy."""
    drawings = [utilisation_chart(results), waiting_chart(results)]
    if any(job.completed_at is not None for result in results for job in result.jobs):
        drawings.append(completion_chart(results))
    if any(sample.service_target for result in results for sample in result.samples):
        drawings.append(service_chart(results))
    drawings += [timeline_chart(result, number) for number, result in enumerate(results)]
    return drawings


def utilisation_chart(results: Sequence[RunResult]) -> Drawing:
    return _over_time(
        results,
        title="Utilisation over time",
        value=lambda sample: 100 * sample.utilisation,
        unit="%",
        top=100.0,
    )


def waiting_chart(results: Sequence[RunResult]) -> Drawing:
    return _over_time(
        results, title="Jobs waiting", value=lambda sample: sample.waiting_jobs, unit="", top=None
    )


def service_chart(results: Sequence[RunResult]) -> Drawing:
    drawing = _over_time(
        results,
        title="Replicas of services (dashed: wanted)",
        value=lambda sample: sample.service_running,
        unit="",
        top=float(max(sample.service_target for result in results for sample in result.samples) or 1),
    )
    end = max(result.end for result in results)
    top = float(max(sample.service_target for result in results for sample in result.samples) or 1)
    points = _steps(results[0], lambda sample: sample.service_target, end, _nice(top))
    drawing.shapes.append(Stroke(points=points, colour="muted", width=1.2, dashed=True))
    return drawing


def completion_chart(results: Sequence[RunResult]) -> Drawing:
    """The share of jobs that are done within so many seconds of their submission."""
    times = [
        sorted(t for job in result.jobs if (t := job.completion_seconds) is not None) for result in results
    ]
    longest = _nice(max((series[-1] for series in times if series), default=1.0))
    drawing = _frame("Share of jobs completed within", longest, 100.0, "%", results)
    for number, (series, result) in enumerate(zip(times, results, strict=True)):
        if not series:
            continue
        points = [_place(0, 0, longest, 100.0)]
        for rank, seconds in enumerate(series):
            points.append(_place(seconds, 100.0 * rank / len(result.jobs), longest, 100.0))
            points.append(_place(seconds, 100.0 * (rank + 1) / len(result.jobs), longest, 100.0))
        points.append(_place(longest, 100.0 * len(series) / len(result.jobs), longest, 100.0))
        drawing.shapes.append(Stroke(points=points, colour=series_colour(number), width=1.8))
    return drawing


def timeline_chart(result: RunResult, number: int = 0) -> Drawing:
    """Draws a row per job: pale while it waits, darker the more instances it has."""
    jobs = [job for job in result.jobs if not job.rejected][:_TIMELINE_ROWS]
    row = max(3.0, min(16.0, 420.0 / max(len(jobs), 1)))
    height = _TOP + row * len(jobs) + _BOTTOM
    end = _nice(result.end)
    largest = max((size for job in jobs for _, size in job.sizes), default=1) or 1
    drawing = Drawing(width=WIDTH, height=height, title=f"Jobs over time, {result.policy}")
    drawing.shapes.append(Label(x=8, y=20, text=f"Jobs over time: {result.policy}", size=14, bold=True))
    legend = f"pale: waiting; darker: more instances, up to {largest}"
    drawing.shapes.append(Label(x=WIDTH - _RIGHT, y=20, text=legend, colour="muted", size=11, anchor="end"))
    span = WIDTH - _LEFT - _RIGHT
    for tick in _ticks(end):
        x = _LEFT + span * tick / end
        drawing.shapes.append(Stroke(points=[(x, _TOP), (x, height - _BOTTOM)], colour="grid"))
        drawing.shapes.append(
            Label(x=x, y=height - _BOTTOM + 16, text=_clock(tick), colour="muted", size=11, anchor="middle")
        )
    for line, job in enumerate(jobs):
        y = _TOP + line * row
        finish = job.completed_at if job.completed_at is not None else result.end
        if row >= 9:
            drawing.shapes.append(
                Label(x=_LEFT - 6, y=y + row - 3, text=job.name[-9:], colour="muted", size=9, anchor="end")
            )
        sizes = [*job.sizes, (finish, 0)]
        before = job.submitted_at
        size = 0
        for at, count in sizes:
            at = min(max(at, before), finish)
            if at > before:
                share = size / largest
                hint = (
                    f"{job.name}: {size} instances, {_clock(before)} to {_clock(at)}"
                    if size
                    else f"{job.name} waits"
                )
                drawing.shapes.append(
                    Box(
                        x=_LEFT + span * before / end,
                        y=y,
                        width=span * (at - before) / end,
                        height=row - (1.0 if row > 4 else 0.4),
                        colour=series_colour(number) if size else "muted",
                        opacity=0.3 + 0.7 * math.sqrt(share) if size else 0.2,
                        hint=hint,
                    )
                )
            before, size = at, count
    return drawing


def bar_chart(title: str, rows: Sequence[tuple[str, float]], unit: str) -> Drawing:
    """Horizontal bars with their figures, one per policy."""
    height = 40.0 + 26.0 * len(rows)
    drawing = Drawing(width=WIDTH, height=height, title=title)
    drawing.shapes.append(Label(x=8, y=20, text=title, size=14, bold=True))
    largest = max((value for _, value in rows), default=1.0) or 1.0
    span = WIDTH - 110 - 110
    for number, (name, value) in enumerate(rows):
        y = 34.0 + 26.0 * number
        drawing.shapes.append(Label(x=100, y=y + 14, text=name, anchor="end"))
        drawing.shapes.append(
            Box(
                x=110,
                y=y,
                width=span * value / largest,
                height=18,
                colour=series_colour(number),
                hint=f"{name}: {value:g} {unit}",
            )
        )
        text = f"{value:,.0f} {unit}" if largest >= 10 else f"{value:.2f} {unit}"
        drawing.shapes.append(
            Label(x=116 + span * value / largest, y=y + 14, text=text.strip(), colour="muted")
        )
    return drawing


def _over_time(
    results: Sequence[RunResult],
    *,
    title: str,
    value: Callable[[Sample], float],
    unit: str,
    top: float | None,
) -> Drawing:
    end = max(result.end for result in results)
    highest = max((value(sample) for result in results for sample in result.samples), default=1.0)
    limit = _nice(top if top is not None else max(highest, 1.0))
    drawing = _frame(title, end, limit, unit, results)
    for number, result in enumerate(results):
        points = _steps(result, value, end, limit)
        drawing.shapes.append(Stroke(points=points, colour=series_colour(number), width=1.6))
    return drawing


def _frame(title: str, end: float, limit: float, unit: str, results: Sequence[RunResult]) -> Drawing:
    height = 250.0
    drawing = Drawing(width=WIDTH, height=height, title=title)
    shapes = drawing.shapes
    shapes.append(Label(x=8, y=20, text=title, size=14, bold=True))
    x = WIDTH - _RIGHT
    for number, result in reversed(list(enumerate(results))):
        width = 6.2 * len(result.policy)
        shapes.append(Label(x=x, y=20, text=result.policy, size=12, anchor="end"))
        shapes.append(Box(x=x - width - 14, y=11, width=10, height=10, colour=series_colour(number)))
        x -= width + 30
    for step in range(5):
        share = step / 4
        y = height - _BOTTOM - share * (height - _TOP - _BOTTOM)
        shapes.append(Stroke(points=[(_LEFT, y), (WIDTH - _RIGHT, y)], colour="grid"))
        shapes.append(
            Label(
                x=_LEFT - 6, y=y + 4, text=f"{limit * share:g}{unit}", colour="muted", size=11, anchor="end"
            )
        )
    for tick in _ticks(end):
        x, _ = _place(tick, 0, end, limit)
        shapes.append(Label(x=x, y=height - 12, text=_clock(tick), colour="muted", size=11, anchor="middle"))
    return drawing


def _steps(result: RunResult, value: Callable[[Sample], float], end: float, limit: float) -> list[Point]:
    samples = list(result.samples)
    every = max(1, len(samples) // _MOST_STEPS)
    points: list[Point] = []
    level = 0.0
    for start in range(0, len(samples), every):
        chunk = samples[start : start + every]
        after = sum(value(sample) for sample in chunk) / len(chunk)
        points.append(_place(chunk[0].at, level, end, limit))
        points.append(_place(chunk[0].at, after, end, limit))
        level = after
    points.append(_place(result.end, level, end, limit))
    return points


def _place(x: float, y: float, end: float, limit: float, height: float = 250.0) -> Point:
    return (
        _LEFT + (WIDTH - _LEFT - _RIGHT) * min(x / end if end else 0.0, 1.0),
        height - _BOTTOM - (height - _TOP - _BOTTOM) * min(y / limit if limit else 0.0, 1.0),
    )


def _nice(value: float) -> float:
    """The next round number."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    for factor in (1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10):
        if value <= factor * power * (1 + 1e-9):
            return factor * power
    return 10 * power


def _ticks(end: float) -> list[float]:
    for step in (10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800, 2592000):
        if end / step <= 9:
            return [step * number for number in range(int(end / step) + 1)]
    return [0.0, end]


def _clock(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.3g} min"
    if seconds < 172800:
        return f"{seconds / 3600:.3g} h"
    return f"{seconds / 86400:.3g} d"
