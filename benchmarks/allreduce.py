"""Elastic all-reduce: its speed against DistributedDataParallel, and the cost of a worker that dies or joins.

The same network of 25 million parameters in two processes of one thread each, over gloo on this machine. The time lost
by a death is the time from the kill to the end of the next step of the survivors, minus the duration of a step.
torchrun kills and restarts all processes, so the next step of the new attempt counts; that these would also have to
read a checkpoint and repeat the steps after it is not included. A joining worker is ready when the master reports it;
what counts is the end of the first step that it takes part in, minus the duration of a step.
"""

from __future__ import annotations

import contextlib
import datetime
import itertools
import math
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.processes import Stuck, elasticdl, finish, free_port, running, wait_until, with_environment
from benchmarks.report import Result, at_least, at_most_more

NAME = "allreduce"
_PROGRAM = "benchmarks.allreduce_program"
# Warm-up steps: memory is allocated, connections are made.
_WARM_UP = 5
# A restart takes about ten seconds.
_PEER_SECONDS = 120.0
_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_READY = re.compile(r"^(\S+ \S+) .*Round \d+: worker-\d+, worker-\d+\.", re.MULTILINE)

Step = tuple[float, int, int]


def run(*, quick: bool, repeat: int) -> Iterator[Result]:
    steps = 20 if quick else 60
    speeds = [(_speed(_elastic(steps)), _speed(_plain(steps))) for _ in range(repeat)]
    speed = Result(
        benchmark=NAME,
        case="two processes, 25 million parameters",
        unit="samples/s",
        us=statistics.median(ours for ours, _ in speeds),
        peer=statistics.median(peer for _, peer in speeds),
    )
    yield at_least(speed, 1.0)
    deaths = [(_elastic_death(), _restart()) for _ in range(repeat)]
    lost = statistics.median(ours.lost for ours, _ in deaths)
    death = Result(
        benchmark=NAME,
        case="time lost when one of two is killed",
        unit="s",
        us=lost,
        peer=statistics.median(peer for _, peer in deaths),
    )
    ratio = death.peer / lost if death.peer is not None and lost > 0 else float("inf")
    joined = Result(
        benchmark=NAME,
        case="a worker joins, beyond a step",
        unit="s",
        us=statistics.median(ours.joined for ours, _ in deaths),
    )
    yield replace(
        death,
        compared=f"{ratio:.3g}× less",
        target="≥ 10× less and ≤ 1 s",
        passed=ratio >= 10 and lost <= 1,
    )
    yield at_most_more(joined, 1.0)


class _Death:
    def __init__(self, *, lost: float, joined: float) -> None:
        self.lost = max(0.0, lost)
        self.joined = max(0.0, joined)


def _speed(steps: list[Step]) -> float:
    """Samples a second, in the middle of the run."""
    together = [step for step in steps if step[2] == 2][_WARM_UP:-1]
    return 128 * (len(together) - 1) / (together[-1][0] - together[0][0])


def _read(folder: Path, node: str = "") -> list[Step]:
    """The steps of one process, or of the one with the most."""
    found: list[list[Step]] = []
    for file in folder.glob(f"{node}*"):
        lines = [line.split() for line in file.read_text().splitlines()]
        found.append([(float(t), int(step), int(size)) for t, step, size in lines])
    return max(found, key=len, default=[])


@contextlib.contextmanager
def _job(steps: int) -> Iterator[tuple[Path, Path, Path]]:
    """A job of two workers: the folder of its stamps, of the job, and its log."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stamps, home, log = folder / "stamps", folder / "home", folder / "log"
        stamps.mkdir()
        command = elasticdl(
            "train",
            f"--job_command={sys.executable} -m {_PROGRAM} elastic {steps} {stamps}",
            "--num_workers=2",
            "--distribution_strategy=AllreduceStrategy",
            "--job_name=allreduce",
        )
        environment = {**_ONE_THREAD, "ELASTICDL_HOME": str(home)}
        with running(command, log=log, environment=environment) as process:
            yield stamps, home / "jobs" / "allreduce", log
            if steps < _ENDLESS:
                finish(process, log)


_ENDLESS = 100_000


def _elastic(steps: int) -> list[Step]:
    with _job(steps) as (stamps, _, _):
        wait_until(lambda: any(step >= steps for _, step, _ in _read(stamps)), "all steps")
        return _read(stamps, "worker-0")


def _plain(steps: int) -> list[Step]:
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "stamps").mkdir()
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
        processes = [
            stack.enter_context(
                running(
                    [sys.executable, "-m", _PROGRAM, "plain", str(steps), str(folder / "stamps")],
                    log=folder / f"log-{rank}",
                    environment={**_ONE_THREAD, **address, "RANK": str(rank)},
                )
            )
            for rank in range(2)
        ]
        for rank, process in enumerate(processes):
            finish(process, folder / f"log-{rank}")
        return _read(folder / "stamps")


def _usual(steps: list[Step]) -> float:
    return statistics.median(b[0] - a[0] for a, b in itertools.pairwise(steps))


def _elastic_death() -> _Death:
    with _job(_ENDLESS) as (stamps, folder, _):

        def steps(size: int, after: float, count: int) -> list[Step] | None:
            """Waits until the survivor has made so many steps with so many members."""
            found = [s for s in _read(stamps, "worker-0") if s[2] == size and s[0] > after]
            return found if len(found) >= count else None

        together = wait_until(lambda: steps(2, 0.0, _WARM_UP + 15), "both train")[_WARM_UP:]
        victim = with_environment(ELASTICDL_NODE="worker-1", ELASTICDL_TOKEN_FILE=str(folder / "token"))
        killed = time.time()
        for process in victim:
            process.send_signal(signal.SIGKILL)
        alone = wait_until(lambda: steps(1, killed, 5), "the other goes on")
        before = max(s[0] for s in _read(stamps, "worker-0") if s[0] <= alone[0][0] and s[2] == 2)
        # The current step is completed by one member, as are the next ones.
        lost = alone[0][0] - before - _usual(alone)
        joined = wait_until(lambda: steps(2, alone[0][0], 1), "the replacement takes part")[0]
        ready = _READY.findall((folder / "logs" / "master.log").read_text())[-1]
        moment = datetime.datetime.strptime(ready, "%Y-%m-%d %H:%M:%S,%f").timestamp()
        # The survivor may have just begun a step when the other joins; the next one is of both.
        return _Death(lost=lost, joined=joined[0] - moment - _usual(alone) - _usual(together))


def _restart() -> float:
    """The time of the peer; infinity if its processes never find each other again, which happens."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        stamps = folder / "stamps"
        stamps.mkdir()
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=1:2", "--nproc_per_node=2"]
        command += ["--max_restarts=3", "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{free_port()}"]
        command += ["-m", _PROGRAM, "plain", "1000", str(stamps)]
        with running(command, log=folder / "log", environment=_ONE_THREAD) as torchrun:
            usual = _usual(wait_until(lambda: s if len(s := _read(stamps)) >= 20 else None, "both train"))
            files = set(stamps.glob("*"))
            for process in with_environment(LOCAL_RANK="1"):
                if str(stamps) in process.cmdline():
                    process.send_signal(signal.SIGKILL)

            def again() -> float | None:
                new = [file for file in stamps.glob("*") if file not in files and file.stat().st_size]
                return min((float(f.read_text().split()[0]) for f in new), default=None)

            try:
                first = wait_until(again, "the next attempt trains", _PEER_SECONDS)
            except Stuck:
                first = math.inf
            last = max(s[0] for file in files for s in _read(stamps, file.name))
            # Its processes have a session of their own, and survive the kill of their parent.
            torchrun.terminate()
            torchrun.wait(timeout=60)
            return first - last - usual
