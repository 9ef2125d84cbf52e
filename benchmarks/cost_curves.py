"""Growth of cost: processor time per sample by workers, servers, rows, batch size, layers; of a master by workers.

DeepFM on parameter servers, *light* unless stated otherwise, as jobs that a user would start. If more processes run
than there are cores, samples per second mean little, so the processor time of all processes of a job counts. The points
of a curve are timed in turns, and each is compared with the first one of its curve.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import master_load
from benchmarks.parameter_servers import clicks, sides
from benchmarks.parameter_servers.sides import Setting
from benchmarks.report import Result
from benchmarks.turns import take_turns

NAME = "cost_curves"
# Selects curves by a part of their names; all if not set.
ONLY = "ELASTICDL_BENCHMARK_ONLY"
_SAMPLES = 64 * 4096
_SIZES = clicks.Sizes(ids=1_000_000)
_ONE = {"workers": 1, "threads": 1}


@dataclass(frozen=True, kw_only=True)
class Point:
    label: str
    sizes: clicks.Sizes = _SIZES
    layers: str = "light"
    # Arguments of `sides.ours`.
    job: dict[str, Any]


def curves() -> dict[str, list[Point]]:
    return {
        "workers": [Point(label=str(n), job={"workers": n, "threads": 1}) for n in (1, 2, 4, 8)],
        "servers": [Point(label=str(n), job={"workers": 2, "threads": 1, "servers": n}) for n in (1, 2, 4)],
        "rows": [
            Point(label=f"{n:,}", sizes=clicks.Sizes(ids=n), job=_ONE)
            for n in (100_000, 1_000_000, 10_000_000, 100_000_000)
        ],
        "batch size": [
            Point(
                label=f"{n:,}",
                sizes=clicks.Sizes(ids=1_000_000, batch=n, batches=_SAMPLES // n),
                job=_ONE,
            )
            for n in (4096, 256, 1024, 16_384)
        ],
        "layers": [Point(label=layers, layers=layers, job=_ONE) for layers in ("light", "full")],
    }


def run(*, quick: bool, repeat: int) -> Iterator[Result]:
    wanted = os.environ.get(ONLY, "")
    for name, points in curves().items():
        if wanted in name:
            print(f"  {name} …", file=sys.stderr, flush=True)
            yield from _curve(
                name, points[:2] if quick else points, rounds=repeat, seconds=1.0 if quick else 4.0
            )
    if wanted in "workers of a master":
        print("  workers of a master …", file=sys.stderr, flush=True)
        yield from _masters((100,) if quick else (100, 500, 2_000), seconds=3.0 if quick else 15.0)


def _curve(name: str, points: Sequence[Point], *, rounds: int, seconds: float) -> Iterator[Result]:
    with contextlib.ExitStack() as stack:
        folders: dict[clicks.Sizes, Path] = {}
        started = []
        for point in points:
            if point.sizes not in folders:
                folders[point.sizes] = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                clicks.make(folders[point.sizes], point.sizes)
            setting = Setting(data=folders[point.sizes], sizes=point.sizes, size=point.layers)
            side = stack.enter_context(sides.ours(setting, **point.job))
            side.wait_until_under_way()
            side.halt()
            started.append(side)
        speeds = take_turns(started, lambda side: side.speed(seconds), rounds=rounds)
    work = [1e6 * statistics.median(speed.work for speed in speeds[side]) for side in started]
    for point, side, cost in zip(points, started, work, strict=True):
        per_second = statistics.median(speed.per_second for speed in speeds[side])
        yield _point(name, point.label, "µs of a sample", cost, work[0], note=f"{per_second:,.0f} samples/s")


def _masters(counts: Sequence[int], *, seconds: float) -> Iterator[Result]:
    first: float | None = None
    for count in counts:
        found = master_load.measure(count, max(4, count // 10), seconds=seconds)
        # A worker has a batch a second.
        cost = 1e4 * found.core_percent / count
        first = first or cost
        note = f"p99 of a lease {found.lease_p99_ms:.1f} ms, {found.memory_mb:.0f} MB"
        yield _point("workers of a master", f"{count:,}", "µs of a batch", cost, first, note=note)


def _point(curve: str, label: str, unit: str, cost: float, first: float, *, note: str) -> Result:
    return Result(
        benchmark=NAME,
        case=f"{curve}: {label}",
        unit=unit,
        us=cost,
        peer=first,
        compared=f"{cost / first:.3g}×",
        note=note,
    )
