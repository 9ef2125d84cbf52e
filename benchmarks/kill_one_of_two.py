"""One of two workers is killed with SIGKILL: whether the other one waits, and when the replacement trains.

Waiting shows as a gap between the batches of the survivor. The longest gap from the kill until the replacement is in
steady state is compared with the longest gap in a period of the same length before the kill. The time of the
replacement is from the kill to its first batch, minus the import of its framework, measured in that process. How long a
framework itself takes between its import and its first batch is measured with a plain script that starts beside a
training worker, as the replacement does.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import stamps, training
from benchmarks.processes import Stuck, running, tail, wait_until, with_environment
from benchmarks.report import Result, at_most_more

NAME = "kill_one_of_two"
VICTIM, SURVIVOR, REPLACEMENT = "worker-0", "worker-1", "worker-2"
# Batches of both workers before the kill, to measure the usual gap.
BEFORE = 100
# A gap this many times the longest usual one is not noise of a busy machine.
LONGEST_GAP = 2.0


@dataclass(frozen=True, kw_only=True)
class Kill:
    usual_gap: float
    longest_before: float
    longest_after: float
    replacement: float
    first_done: float
    imported: float
    # Processor time of the replacement up to its first batch, without the import.
    worked: float
    # Batches per second of the survivor until the replacement trains, relative to before.
    pace: float


def run(*, quick: bool, repeat: int) -> list[Result]:
    results = []
    # One epoch outlasts the measurement: transitions between epochs are not measured here.
    with training.images(100, files=200) as data:
        for framework in training.FRAMEWORKS:
            kills = [_kill(framework, data, before=BEFORE // 5 if quick else BEFORE) for _ in range(repeat)]
            beside = [
                _plain_beside(framework, data, before=BEFORE // 5 if quick else BEFORE) for _ in range(repeat)
            ]
            results += [
                _waiting(framework, kills),
                _replacing(framework, kills),
                _against_plain(framework, kills, beside),
            ]
    return results


def _waiting(framework: str, kills: list[Kill]) -> Result:
    after = _median(kills, lambda kill: kill.longest_after)
    before = _median(kills, lambda kill: kill.longest_before)
    ratio = _median(kills, lambda kill: kill.longest_after / kill.longest_before)
    usual = _median(kills, lambda kill: kill.usual_gap)
    pace = _median(kills, lambda kill: kill.pace)
    return Result(
        benchmark=NAME,
        case=f"{framework}, longest gap of the other",
        unit="ms",
        us=after * 1e3,
        peer=before * 1e3,
        compared=f"{ratio:.2f}×",
        target=f"≤ {LONGEST_GAP:g}×",
        passed=ratio <= LONGEST_GAP,
        note=f"the peer is the same worker before the kill; its usual gap is {usual * 1e3:.1f} ms, "
        f"and after the kill it goes on at {pace:.2f}× its pace",
    )


def _replacing(framework: str, kills: list[Kill]) -> Result:
    result = Result(
        benchmark=NAME,
        case=f"{framework}, replacement trains",
        unit="s",
        us=_median(kills, lambda kill: kill.replacement),
        peer=_median(kills, lambda kill: kill.imported),
        note="the peer is the import of the framework in that process; its own work up to the first batch "
        f"is {_median(kills, lambda kill: kill.worked):.2f} s of processor time; "
        f"that batch is done after {_median(kills, lambda kill: kill.first_done):.2f} s",
    )
    return at_most_more(result, 1.0)


def _against_plain(framework: str, kills: list[Kill], beside: list[float]) -> Result:
    return Result(
        benchmark=NAME,
        case=f"{framework}, replacement and plain script, without import",
        unit="s",
        us=_median(kills, lambda kill: kill.replacement - kill.imported),
        peer=statistics.median(beside),
        compared=f"{_median(kills, lambda kill: kill.replacement - kill.imported) / statistics.median(beside):.2f}×",
        note="the peer is the time from its start to its first batch that a plain script takes beside a worker; there "
        "is no failure to detect, no node to start and no model to fetch",
    )


def _plain_beside(framework: training.Framework, data: Path, *, before: int) -> float:
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryDirectory() as other:
        home = Path(place)
        command = training.train_command(
            framework,
            data,
            "--distribution_strategy=ParameterServerStrategy",
            "--num_workers=1",
            "--num_ps=1",
        )
        variables = {**training.environment(home), "ELASTICDL_THREADS": "1"}
        with running(command, log=home / "log", environment=variables):
            node = VICTIM
            done = partial(stamps.batches_done, home / "stamps", node)
            wait_until(lambda: done() >= before, f"{node} has done {before} batches")
            run = training.plain_beginning(framework, data, Path(other))
        wait_until(lambda: not with_environment(ELASTICDL_HOME=str(home)), "all of the job has ended")
    return run.stamps.begins[0].seconds - run.started - run.stamps.import_seconds


def _median(kills: list[Kill], value: Callable[[Kill], float]) -> float:
    return statistics.median(value(kill) for kill in kills)


def _kill(framework: training.Framework, data: Path, *, before: int) -> Kill:
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        command = training.train_command(
            framework,
            data,
            "--distribution_strategy=ParameterServerStrategy",
            *("--num_workers=2", "--num_ps=1"),
        )
        # One thread each: otherwise two workers compete on a small machine.
        variables = {**training.environment(home), "ELASTICDL_THREADS": "1"}
        log = home / "log"
        with running(command, log=log, environment=variables) as host:

            def stamped(node: str, count: int) -> bool:
                if host.poll() is not None:
                    raise Stuck(f"the job has ended:\n{tail(log)}")
                return stamps.batches_done(home / "stamps", node) >= count

            for node in (VICTIM, SURVIVOR):
                wait_until(partial(stamped, node, before), f"{node} has done {before} batches")
            (victim,) = with_environment(ELASTICDL_NODE=VICTIM, ELASTICDL_HOME=str(home))
            killed = time.monotonic()
            victim.kill()
            # Polled rarely: the stamps have the times, and polling uses the machine.
            wait_until(lambda: stamped(REPLACEMENT, 10), f"{REPLACEMENT} has done 10 batches", every=0.1)
        wait_until(lambda: not with_environment(ELASTICDL_HOME=str(home)), "all of the job has ended")
        found = stamps.read(home / "stamps")
    return _seen(found[SURVIVOR], found[REPLACEMENT], killed)


def _seen(survivor: stamps.Stamps, replacement: stamps.Stamps, killed: float) -> Kill:
    until, begun = replacement.ends[-1].seconds, replacement.begins[0].seconds
    pairs = itertools.pairwise(stamp.seconds for stamp in survivor.ends)
    gaps = [(late, late - early) for early, late in pairs]
    usual = [gap for at, gap in gaps if killed - (until - killed) <= at <= killed]
    after = [gap for at, gap in gaps if killed < at <= until]
    alone = [gap for at, gap in gaps if killed < at <= begun]
    return Kill(
        usual_gap=statistics.median(usual),
        longest_before=max(usual),
        longest_after=max(after),
        replacement=begun - killed,
        first_done=replacement.ends[0].seconds - killed,
        imported=replacement.import_seconds,
        worked=replacement.work_for_first_batch,
        pace=statistics.mean(usual) / statistics.mean(alone),
    )
