"""The result of a simulation: per job, over time, and in one line of figures."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field


@dataclass(kw_only=True)
class JobResult:
    """A job's result. Times are seconds of the virtual clock; None means that it did not happen.

    first_instance_at: the first elastic instance ran. started_at: all groups ran at their minimum, so that
    the job trains.
    """

    name: str
    submitted_at: float
    requested: int
    first_instance_at: float | None = None
    started_at: float | None = None
    completed_at: float | None = None
    resizes: int = 0
    instance_seconds: float = 0.0
    done_share: float = 0.0
    isolated_seconds: float = math.inf
    # With the fair share of the machines that it met while it was there.
    fair_seconds: float = math.inf
    rejected: str = ""
    sizes: list[tuple[float, int]] = field(default_factory=list)

    @property
    def completion_seconds(self) -> float | None:
        return None if self.completed_at is None else self.completed_at - self.submitted_at

    def waiting_seconds(self, end: float) -> float:
        """Seconds until the job trained; until the end of the simulation if it never did."""
        return (end if self.started_at is None else self.started_at) - self.submitted_at

    def first_instance_seconds(self, end: float) -> float:
        return (end if self.first_instance_at is None else self.first_instance_at) - self.submitted_at

    def size_at(self, second: float) -> int:
        size = 0
        for at, count in self.sizes:
            if at > second:
                break
            size = count
        return size


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The cluster from one moment to the next."""

    at: float
    # Share of the resource that running pods request, of anyone and of jobs only.
    utilisation: float
    job_utilisation: float
    running_jobs: int
    waiting_jobs: int
    service_running: int
    service_target: int
    # Elastic instances of each job that is submitted and not done, running or not.
    jain: float


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A line of the comparison."""

    policy: str
    workload: str
    jobs: int
    completed: int
    # Submitted jobs that never trained, rejected ones left out.
    stuck: int
    rejected: int
    mean_completion: float | None
    median_completion: float | None
    p99_completion: float | None
    mean_waiting: float
    mean_first_instance: float
    makespan: float
    utilisation: float
    resizes_per_job: float
    jain: float
    finish_fairness_mean: float | None
    finish_fairness_max: float | None
    # Instances' worth of useful work, on average over the simulation.
    goodput: float
    plan_milliseconds_mean: float
    plan_milliseconds_max: float


@dataclass(frozen=True, kw_only=True)
class RunResult:
    policy: str
    workload: str
    resource: str
    end: float
    jobs: Sequence[JobResult]
    samples: Sequence[Sample]
    plan_seconds: Sequence[float]

    def average(self, attribute: str, *, start: float = 0.0, end: float | None = None) -> float:
        """Returns the mean over time of one figure of the samples."""
        stop = self.end if end is None else min(end, self.end)
        total = 0.0
        for here, until in zip(self.samples, [*(s.at for s in self.samples[1:]), self.end], strict=False):
            total += max(0.0, min(until, stop) - max(here.at, start)) * float(getattr(here, attribute))
        return total / (stop - start) if stop > start else 0.0

    def summary(self) -> Summary:
        jobs = [job for job in self.jobs if not job.rejected]
        done = sorted(job.completion_seconds for job in jobs if job.completion_seconds is not None)
        fairness = [
            (job.completed_at - job.submitted_at) / job.fair_seconds
            for job in jobs
            if job.completed_at is not None and 0 < job.fair_seconds < math.inf
        ]
        work = sum(
            job.done_share * job.isolated_seconds for job in jobs if math.isfinite(job.isolated_seconds)
        )
        plans = [seconds * 1000 for seconds in self.plan_seconds] or [0.0]
        return Summary(
            policy=self.policy,
            workload=self.workload,
            jobs=len(self.jobs),
            completed=len(done),
            stuck=sum(job.started_at is None and job.submitted_at < self.end for job in jobs),
            rejected=len(self.jobs) - len(jobs),
            mean_completion=statistics.fmean(done) if done else None,
            median_completion=statistics.median(done) if done else None,
            p99_completion=percentile(done, 99.0) if done else None,
            mean_waiting=_mean(job.waiting_seconds(self.end) for job in jobs),
            mean_first_instance=_mean(job.first_instance_seconds(self.end) for job in jobs),
            makespan=max((job.completed_at for job in jobs if job.completed_at is not None), default=self.end)
            - min((job.submitted_at for job in jobs), default=0.0),
            utilisation=self.average("utilisation"),
            resizes_per_job=_mean(job.resizes for job in jobs),
            jain=self._mean_jain(),
            finish_fairness_mean=statistics.fmean(fairness) if fairness else None,
            finish_fairness_max=max(fairness) if fairness else None,
            goodput=work / self.end if self.end > 0 else 0.0,
            plan_milliseconds_mean=statistics.fmean(plans),
            plan_milliseconds_max=max(plans),
        )

    def _mean_jain(self) -> float:
        total = weight = 0.0
        for here, until in zip(self.samples, [*(s.at for s in self.samples[1:]), self.end], strict=False):
            if here.running_jobs + here.waiting_jobs > 1:
                total += (until - here.at) * here.jain
                weight += until - here.at
        return total / weight if weight else 1.0


def jain_index(values: Iterable[float]) -> float:
    """(Σx)² / (n·Σx²): 1 if all are equal, 1/n if one has everything."""
    items = list(values)
    squares = sum(value * value for value in items)
    return sum(items) ** 2 / (len(items) * squares) if squares > 0 else 1.0


def percentile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the two nearest of the sorted values."""
    place = (len(ordered) - 1) * share / 100.0
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _mean(values: Iterable[float]) -> float:
    items = list(values)
    return statistics.fmean(items) if items else 0.0
