"""The table of this benchmark: which sides are compared, with which targets, and how."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

from benchmarks.parameter_servers import clicks, filling, moving, restoring, saving, sides
from benchmarks.parameter_servers.missing import Missing
from benchmarks.parameter_servers.sides import Setting, Trainers
from benchmarks.processes import Stuck
from benchmarks.report import Result
from benchmarks.turns import Speed, compared, take_turns
from elasticdl.jobs.sections.placement import NodesSection

NAME = "parameter_servers"
# Selects comparisons by a part of their names; all if not set.
ONLY = "ELASTICDL_BENCHMARK_ONLY"

Start = Callable[[Setting], AbstractContextManager[Trainers]]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    name: str
    size: str
    ours: Sequence[Start]
    peers: Sequence[Start]
    # Target: ours at least so many times the peer; None: only reported.
    target: float | None
    # Sides without servers: no server makes a side faster than the fastest of these.
    bounds: Sequence[Start] = ()
    # Target as a fraction of the bound, if there is one.
    of_bound: float | None = None
    note: str = ""
    learns: bool = True


def comparisons() -> list[Comparison]:
    found = []
    for size, torch_target, torchrec_target, tensorflow_target in (
        ("full", 1.15, 1.3, 1.0),
        ("light", 1.7, 2.0, 1.3),
    ):
        found += [
            Comparison(
                name=f"TorchRec's kernels, one process, {size}",
                size=size,
                ours=_ours(),
                peers=[partial(sides.torchrec, threads=threads) for threads in (1, 2)],
                target=torchrec_target,
            ),
            Comparison(
                name=f"the model alone, rows given and nothing sent, {size}",
                size=size,
                ours=_ours(),
                peers=[
                    partial(
                        sides.model_alone, workers=workers, threads=threads, flags=["--optimizer=adagrad"]
                    )
                    for workers, threads in ((1, 2), (2, 1))
                ],
                target=0.9 if size == "full" else None,
                learns=False,
                note="the bound that no server can exceed, as the peer",
            ),
            Comparison(
                name=f"PyTorch, one process, {size}",
                size=size,
                ours=_ours(),
                peers=[partial(sides.plain_torch, threads=threads) for threads in (1, 2)],
                target=torch_target,
            ),
            Comparison(
                name=f"TensorFlow's parameter server, {size}",
                size=size,
                ours=_ours(),
                peers=[
                    partial(sides.estimator, workers=workers, threads=threads, unique=unique)
                    for workers, threads in ((1, 2), (2, 1))
                    for unique in (False, True)
                ],
                target=tensorflow_target,
            ),
        ]
    found += [
        *(
            Comparison(
                name=f"elasticdl 0.2's server (SGD), {size}",
                size=size,
                ours=_ours(optimizer="sgd"),
                peers=[
                    partial(sides.go, workers=workers, threads=threads)
                    for workers, threads in ((1, 2), (2, 1))
                ],
                target=target,
                bounds=[
                    partial(sides.model_alone, workers=workers, threads=threads)
                    for workers, threads in ((1, 2), (2, 1))
                ],
                of_bound=of_bound,
            )
            for size, target, of_bound in (("full", None, 0.95), ("light", 2.0, None))
        ),
        Comparison(
            name="elasticdl 0.2's server (SGD), server path alone",
            size="",
            ours=[partial(sides.our_path, workers=workers) for workers in (1, 2)],
            peers=[partial(sides.go, workers=workers, threads=1) for workers in (1, 2)],
            target=5.0,
            learns=False,
            note="samples whose rows were pulled and whose gradients were pushed",
        ),
        *(
            Comparison(
                name=f"Paddle's parameter server (Adam), {case}full",
                size="full",
                ours=_ours(framework=framework, optimizer="adam"),
                peers=_paddle(),
                target=2.0,
            )
            for framework, case in (("torch", ""), ("paddle", "Paddle model, "))
        ),
        Comparison(
            name="Paddle's parameter server (Adam), Paddle model and MKL's kernels selected, full",
            size="full",
            ours=_ours(framework="paddle", optimizer="adam"),
            peers=_paddle(selects_kernels=True),
            target=None,
            bounds=[
                partial(sides.model_alone, workers=workers, threads=threads, program="paddle_model_alone")
                for workers, threads in ((1, 2), (2, 1))
            ],
            note="the peer uses the MKL kernels that our workers select, too",
        ),
        Comparison(
            name="tf.keras, one process, full",
            size="full",
            ours=_ours(framework="keras"),
            peers=[partial(sides.plain_keras, threads=2)],
            target=0.9,
        ),
    ]
    for size in ("full", "light"):
        found.append(
            Comparison(
                name=f"one worker, {size}",
                size=size,
                ours=[partial(sides.ours, workers=2, threads=1)],
                peers=[partial(sides.ours, workers=1, threads=threads) for threads in (1, 2)],
                target=1.0,
                note="two workers of ours against one",
            )
        )
    if any(each.name == "ps_replicas" for each in fields(NodesSection)):
        found += [
            Comparison(
                name=f"two servers without replicas, {size}",
                size=size,
                ours=[partial(sides.ours, workers=2, threads=1, servers=2)],
                peers=[partial(sides.ours, workers=2, threads=1, servers=2, flags=["--ps_replicas=1"])],
                target=0.95,
                note="two of our servers with replicas of each other's rows, against two without",
            )
            for size in ("full", "light")
        ]
    return found


def _ours(*, framework: str = "torch", optimizer: str = "adagrad") -> list[Start]:
    return [
        partial(sides.ours, workers=workers, threads=threads, framework=framework, optimizer=optimizer)
        for workers, threads in ((1, 2), (2, 1))
    ]


def _paddle(*, selects_kernels: bool = False) -> list[Start]:
    return [
        partial(sides.paddle, workers=workers, threads=threads, selects_kernels=selects_kernels)
        for workers, threads in ((1, 2), (2, 1))
    ]


def run(*, quick: bool, repeat: int) -> Iterator[Result]:
    sizes = clicks.QUICK if quick else clicks.Sizes()
    wanted = os.environ.get(ONLY, "")
    with tempfile.TemporaryDirectory() as folder:
        clicks.make(Path(folder), sizes)
        for comparison in comparisons():
            if wanted in comparison.name:
                print(f"  against {comparison.name} …", file=sys.stderr, flush=True)
                setting = Setting(data=Path(folder), sizes=sizes, size=comparison.size)
                yield _measured(comparison, setting, rounds=repeat, seconds=2.0 if quick else 6.0)
        if wanted in "moving":
            print("  moving buckets …", file=sys.stderr, flush=True)
            setting = Setting(data=Path(folder), sizes=sizes, size="light")
            yield from moving.measure(NAME, setting, rounds=repeat)
            yield filling.measure(NAME, quick=quick)
    if wanted in "restore":
        print("  server start …", file=sys.stderr, flush=True)
        yield restoring.measure(NAME, sizes, rounds=repeat)
    if wanted in "save":
        print("  saving …", file=sys.stderr, flush=True)
        yield saving.measure(NAME, sizes, rounds=repeat)


def _measured(comparison: Comparison, setting: Setting, *, rounds: int, seconds: float) -> Result:
    try:
        return _measure(comparison, setting, rounds=rounds, seconds=seconds)
    except Missing as missing:
        return _nothing(comparison, f"this peer is not available here: {missing}")
    except Stuck as stuck:
        # The others can still be measured.
        print(stuck, file=sys.stderr, flush=True)
        return _nothing(comparison, "it failed; its output is above", passed=False)


def _nothing(comparison: Comparison, note: str, *, passed: bool | None = None) -> Result:
    return Result(
        benchmark=NAME,
        case=comparison.name,
        unit="samples/s",
        us=0.0,
        compared="not measured",
        passed=passed,
        note=note,
    )


def _measure(comparison: Comparison, setting: Setting, *, rounds: int, seconds: float) -> Result:
    with contextlib.ExitStack() as stack:
        # One after the other: a starting side uses the whole machine, and is suspended until its turn.
        started: list[list[Trainers]] = []
        # Peers first, because they can be missing.
        for starts in (comparison.peers, comparison.ours, comparison.bounds):
            started.append([])
            for start in starts:
                side = stack.enter_context(start(setting))
                side.wait_until_under_way()
                side.halt()
                started[-1].append(side)
        peers, ours, bounds = started
        speeds = take_turns([*ours, *peers, *bounds], lambda side: side.speed(seconds), rounds=rounds)
        if comparison.learns:
            for side in (*ours, *peers):
                side.check_learning()
        best, best_peer = (max(group, key=lambda side: _median(speeds[side])) for group in (ours, peers))
        tried = "; ".join(
            f"{whose} {side.name}: {_median(speeds[side]):,.0f}"
            for whose, group in (("ours", ours), ("peer", peers), ("the model alone", bounds))
            for side in group
        )
        target = comparison.target
        if bounds:
            most = max(_median(speeds[side]) for side in bounds) / _median(speeds[best_peer])
            tried += f" (so no server could make it more than {most:.2f}×)"
            if comparison.of_bound is not None:
                target = round(comparison.of_bound * most, 3)
    result = compared(
        speeds[best],
        speeds[best_peer],
        benchmark=NAME,
        case=comparison.name,
        unit="samples/s",
        at_least=target or 0.0,
        work_of="sample",
    )
    note = f"{comparison.note + '; ' if comparison.note else ''}{tried}; {result.note}"
    verdict = {"target": "", "passed": None} if target is None else {}
    return Result(**{**vars(result), **verdict, "note": note})


def _median(speeds: Sequence[Speed]) -> float:
    return statistics.median(speed.per_second for speed in speeds)
