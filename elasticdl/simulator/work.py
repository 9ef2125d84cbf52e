"""The work of a job and its speed: measured programs, and jobs of a given amount of work.

The engine owns the clock and the instances; an object of this module owns the progress of one job. It is
asked to advance by some seconds in a placement, and knows afterwards whether the job is done.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass

from elasticdl.scheduling.demand import BatchLimits, GradientNoise, Observation, Progress
from elasticdl.simulator.traces import Placement, TracedProgram

# Chooses (local batch, accumulation steps) for so many machines and replicas from what the job has shown so
# far.
BatchChooser = Callable[["TracedProgress", int, int], tuple[int, int]]


class WorkProgress(abc.ABC):
    """The progress of one job while it runs."""

    @abc.abstractmethod
    def resize(self, placement: Placement) -> None:
        """Takes note of a new placement of the elastic instances (instances per machine)."""

    @abc.abstractmethod
    def advance(self, seconds: float) -> float | None:
        """Runs for so long; returns the seconds after which the job was done, or None."""

    @abc.abstractmethod
    def seconds_left(self) -> float | None:
        """Seconds until the job is done if nothing changes; None if that is not known."""

    @abc.abstractmethod
    def done_share(self) -> float:
        """The share of the work that is done, between 0 and 1."""

    @abc.abstractmethod
    def reported(self) -> Progress:
        """Returns the progress as a master reports it."""

    @property
    def observations(self) -> tuple[Observation, ...]:
        return ()

    @property
    def noise(self) -> GradientNoise | None:
        return None


class Work(abc.ABC):
    """The work of one job."""

    @abc.abstractmethod
    def start(self, *, chooser: BatchChooser | None) -> WorkProgress: ...

    @abc.abstractmethod
    def isolated_seconds(self, size: int) -> float:
        """Seconds that the job takes alone with so many instances, without waiting or restarts."""

    @property
    def batch_limits(self) -> BatchLimits | None:
        return None

    @property
    def needs_all(self) -> bool:
        """Whether a job of fixed size makes progress only when all of its instances run."""
        return False


@dataclass(frozen=True, kw_only=True)
class LinearWork(Work):
    """So many seconds of work on one instance; r instances are r / (1 + overhead·(r − 1)) times as fast.

    Infinite seconds mean a job that outlasts the simulation.
    """

    seconds: float
    overhead: float = 0.0

    def speed(self, size: int) -> float:
        return 0.0 if size <= 0 else size / (1.0 + self.overhead * (size - 1))

    def start(self, *, chooser: BatchChooser | None) -> WorkProgress:
        return _LinearProgress(self)

    def isolated_seconds(self, size: int) -> float:
        return self.seconds / self.speed(max(size, 1))


class _LinearProgress(WorkProgress):
    def __init__(self, work: LinearWork) -> None:
        self._work = work
        self._done = 0.0
        self._size = 0
        self._machines = 0
        self._observations: dict[tuple[int, int], Observation] = {}
        self._reported: tuple[Observation, ...] = ()

    def resize(self, placement: Placement) -> None:
        self._size = sum(placement)
        self._machines = len(placement)

    def advance(self, seconds: float) -> float | None:
        speed = self._work.speed(self._size)
        if speed <= 0:
            return None
        self._observe(speed)
        left = self._work.seconds - self._done
        if left <= speed * seconds + 1e-9:
            self._done = self._work.seconds
            return left / speed
        self._done += speed * seconds
        return None

    def _observe(self, speed: float) -> None:
        key = (self._machines, self._size)
        if key not in self._observations:
            self._observations[key] = Observation.from_throughput(
                machines=self._machines, replicas=self._size, samples_per_second=speed
            )
            self._reported = tuple(self._observations.values())

    def seconds_left(self) -> float | None:
        speed = self._work.speed(self._size)
        left = self._work.seconds - self._done
        return left / speed if speed > 0 and math.isfinite(left) else None

    def done_share(self) -> float:
        return self._done / self._work.seconds if math.isfinite(self._work.seconds) else 0.0

    def reported(self) -> Progress:
        total = self._work.seconds if math.isfinite(self._work.seconds) else None
        return Progress(work_done=self._done, work_total=total)

    @property
    def observations(self) -> tuple[Observation, ...]:
        return self._reported


@dataclass(frozen=True, kw_only=True)
class TracedWork(Work):
    """A measured program; `batch` is the batch size that its user would ask for."""

    program: TracedProgram
    batch: int

    def start(self, *, chooser: BatchChooser | None) -> WorkProgress:
        fixed = self.program.rules.fixed_batch
        if chooser is None or fixed is not None:
            batch = fixed if chooser is not None and fixed is not None else self.batch
            return TracedProgress(self, chooser=lambda job, n, r: split_batch(self.program, batch, r))
        return TracedProgress(self, chooser=chooser)

    @property
    def needs_all(self) -> bool:
        return True

    @property
    def batch_limits(self) -> BatchLimits | None:
        program = self.program
        fixed = program.rules.fixed_batch
        return BatchLimits(
            initial=fixed or program.init_batch,
            largest=fixed or program.max_batch,
            smallest_local=program.min_local_batch,
            largest_local=program.max_local_batch,
        )

    @property
    def largest_size(self) -> int:
        """The most replicas that the batch sizes and the rules of the comparison allow."""
        program = self.program
        return min(64, program.max_batch // program.min_local_batch, program.rules.max_replicas or 64)

    def isolated_seconds(self, size: int) -> float:
        program = self.program
        size = max(1, min(size, self.largest_size))
        whole, rest = divmod(size, 4)
        placement = (4,) * whole + ((rest,) if rest else ())
        fixed = program.rules.fixed_batch
        sizes = [fixed] if fixed else [*_doublings(program.init_batch, program.max_batch), self.batch]
        total = 0.0
        for epoch in range(program.epochs):
            work = program.progress_after(epoch + 1) - program.progress_after(epoch)
            best = 0.0
            for batch in sizes:
                local, steps = split_batch(program, batch, size)
                if local < program.min_local_batch:
                    continue
                best = max(best, goodput(program, placement, local, steps, epoch))
            if best <= 0:
                return math.inf
            total += work / best
        return total


def _doublings(first: int, last: int) -> list[int]:
    sizes = [first]
    while sizes[-1] * 2 <= last:
        sizes.append(sizes[-1] * 2)
    return sizes


def split_batch(program: TracedProgram, batch: int, replicas: int) -> tuple[int, int]:
    """Returns the local batch and the accumulation steps that make up a batch size on so many replicas.

    One replica beyond the smallest batch size accumulates at least once, as in the published simulator: the
    gradient noise is measured between the parts of a batch.
    """
    share = math.ceil(batch / replicas - 1e-8)
    steps = math.ceil(share / program.max_local_batch - 1e-8) - 1
    if replicas == 1 and batch > program.init_batch:
        steps = max(1, steps)
    local = math.ceil(share / (steps + 1) - 1e-8)
    return min(local, program.max_batch // (replicas * (steps + 1))), steps


def goodput(program: TracedProgram, placement: Placement, local: int, steps: int, epoch: int) -> float:
    """Returns the progress per second, in updates of the smallest batch size."""
    batch = sum(placement) * local * (steps + 1)
    step, sync = program.step_time(placement, local)
    sqr, var = program.gradient(batch, epoch)
    scale = batch / program.init_batch
    gain = (var + sqr) / (var / scale + sqr)
    return gain / (step + steps * (step - sync))


class TracedProgress(WorkProgress):
    """A run of a measured program, by the rules of the published comparison: whole seconds, a batch size per epoch and
    interval.
    """

    def __init__(self, work: TracedWork, *, chooser: BatchChooser) -> None:
        self.work = work
        self.program = work.program
        self.epoch = 0
        self.progress = 0.0
        self._placement: Placement = ()
        self._chooser = chooser
        self._local = 0
        self._steps = 0
        self._seen: dict[tuple[int, int, int], Observation] = {}
        self._observations: tuple[Observation, ...] = ()
        self._noise: GradientNoise | None = None

    @property
    def observations(self) -> tuple[Observation, ...]:
        return self._observations

    @property
    def noise(self) -> GradientNoise | None:
        return self._noise

    @property
    def batch(self) -> int:
        return sum(self._placement) * self._local * (self._steps + 1)

    def resize(self, placement: Placement) -> None:
        self._placement = placement
        if placement:
            self._choose_batch()

    def _choose_batch(self) -> None:
        machines, replicas = len(self._placement), sum(self._placement)
        local, steps = self._chooser(self, machines, replicas)
        self._local, self._steps = max(local, 1), max(steps, 0)

    def advance(self, seconds: float) -> float | None:
        program = self.program
        spent = 0.0
        left = seconds
        while left > 0:
            batch = self.batch
            step, sync = program.step_time(self._placement, self._local)
            sqr, var = program.gradient(batch, self.epoch)
            self._observe(step, sync, sqr, var)
            scale = batch / program.init_batch
            rate = (var + sqr) / (var / scale + sqr) / (step + self._steps * (step - sync))
            target = program.progress_after(self.epoch + 1)
            if self.progress + rate * left < target:
                self.progress += rate * left
                spent += left
                left = 0
            else:
                needed = round((target - self.progress) / rate)
                self.epoch += 1
                self.progress = target
                spent += needed
                left -= needed
                if self.epoch >= program.epochs:
                    return spent
            self._choose_batch()
        return None

    def _observe(self, step: float, sync: float, sqr: float, var: float) -> None:
        if self._noise is None or self._noise.square != sqr or self._noise.variance != var:
            self._noise = GradientNoise(square=sqr, variance=var)
        key = (len(self._placement), sum(self._placement), self._local)
        if key not in self._seen:
            self._seen[key] = Observation(
                machines=key[0],
                replicas=key[1],
                local_batch=self._local,
                step_seconds=step,
                compute_seconds=step - sync,
            )
            self._observations = tuple(self._seen.values())

    def seconds_left(self) -> float | None:
        return None

    def done_share(self) -> float:
        return min(1.0, self.progress / self.program.progress_after(self.program.epochs))

    def reported(self) -> Progress:
        # A master knows which share of the current epoch's samples is done, not which progress the epoch will
        # bring.
        start = self.program.progress_after(self.epoch) if self.epoch < self.program.epochs else self.progress
        end = self.program.progress_after(min(self.epoch + 1, self.program.epochs))
        share = (self.progress - start) / (end - start) if end > start else 0.0
        return Progress(
            epochs_done=self.epoch + max(0.0, min(share, 1.0)),
            epochs_total=float(self.program.epochs),
            work_done=self.progress,
        )
