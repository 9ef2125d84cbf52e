"""One worker in a job against the plain loop of its framework: samples per second, once both are in steady state.

The job is complete: a command, a master with its journal, a worker that leases shards, reports every batch and runs
callbacks. The plain loop reads the same RecordIO files with the same reader and the same parsing. For PyTorch and
Paddle the faster of two plain loops counts: one parses in the training process, one has a DataLoader that parses in
another process. All run at once and are timed in turns.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil

from benchmarks import stamps, training
from benchmarks.processes import Stuck, running, tail
from benchmarks.report import Result
from benchmarks.turns import Side, Speed, compared, ended, take_turns
from elasticdl.worker.environment import select_mkl_kernels

NAME = "one_worker"
# Selects a framework by a part of its name; all if not set.
ONLY = "ELASTICDL_BENCHMARK_ONLY"
TARGETS = {"keras": 1.0, "torch": 1.0, "paddle": 0.95}
# More than can be trained during the measurement.
_FILES, _BATCHES_OF_A_FILE = 200, 100
# Warm-up: graphs are built and pipelines are full.
_UNDER_WAY = 40
# Warm-up after a suspension, until buffers are filled again.
_WARM_SECONDS = 1.0


class Trainer(Side):
    def __init__(self, root: psutil.Process, *, home: Path, node: str) -> None:
        super().__init__([root])
        self._home = home
        self._node = node

    def under_way(self) -> bool:
        return len(self._ends()) >= _UNDER_WAY

    def last_output(self) -> str:
        return tail(self._home / "log")

    def speed(self, seconds: float) -> Speed:
        self.go_on()
        time.sleep(_WARM_SECONDS)
        began = time.monotonic()
        time.sleep(seconds)
        until = time.monotonic()
        self.halt()
        ends = [stamp for stamp in self._ends() if began <= stamp.seconds <= until]
        if len(ends) < 2:
            raise Stuck(f"there are no batches:\n{self.last_output()}")
        samples = training.BATCH * (len(ends) - 1)
        return Speed(
            per_second=samples / (ends[-1].seconds - ends[0].seconds),
            work=(ends[-1].worked - ends[0].worked) / samples,
        )

    def _ends(self) -> list[stamps.Stamp]:
        return stamps.read(self._home / "stamps").get(self._node, stamps.Stamps()).ends


def run(*, quick: bool, repeat: int) -> Iterator[Result]:
    frameworks: tuple[training.Framework, ...] = (*training.FRAMEWORKS, "paddle")
    with training.images(_BATCHES_OF_A_FILE, files=_FILES) as data:
        for framework in frameworks:
            if os.environ.get(ONLY, "") in framework:
                yield _measure(framework, data, rounds=3 * repeat, seconds=1.0 if quick else 3.0)


def _measure(framework: training.Framework, data: Path, *, rounds: int, seconds: float) -> Result:
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(_job(framework, data))
        plain = [
            stack.enter_context(_plain(framework, data, readers=readers))
            for readers in ((0,) if framework == "keras" else (0, 1))
        ]
        speeds = take_turns([ours, *plain], lambda side: side.speed(seconds), rounds=rounds)
    best = max(plain, key=lambda side: statistics.median(speed.per_second for speed in speeds[side]))
    return compared(
        speeds[ours],
        speeds[best],
        benchmark=NAME,
        case=framework,
        unit="samples/s",
        at_least=TARGETS[framework],
        work_of="sample",
    )


@contextlib.contextmanager
def _job(framework: training.Framework, data: Path) -> Iterator[Trainer]:
    command = training.train_command(framework, data, "--distribution_strategy=Local")
    # A plain loop of Paddle computes with one thread, a job with one per core; everything else must be equal.
    threads = {"ELASTICDL_THREADS": "1"} if framework == "paddle" else {}
    with _started(command, node="worker-0", variables=threads) as side:
        yield side


@contextlib.contextmanager
def _plain(framework: training.Framework, data: Path, *, readers: int) -> Iterator[Trainer]:
    # The kernels that our worker selects: these must be equal, too.
    kernels: dict[str, str] = {}
    select_mkl_kernels(kernels)
    command = training.plain_command(framework, data, readers=readers)
    with _started(command, node=stamps.PLAIN, variables=kernels) as side:
        yield side


@contextlib.contextmanager
def _started(
    command: list[str], *, node: str, variables: Mapping[str, str] | None = None
) -> Iterator[Trainer]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        environment = {**training.environment(home), **(variables or {})}
        with running(command, log=home / "log", environment=environment) as process:
            side = Trainer(psutil.Process(process.pid), home=home, node=node)
            with ended(side):
                yield side
