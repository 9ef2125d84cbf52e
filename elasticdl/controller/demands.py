"""The demand of each TrainingJob on the planner: role groups, priority, and the speed and progress that its master
reports.

The planner knows one elastic role per job. Of a job whose trainers and parameter servers are both elastic, the
trainers are the planner's; parameter servers follow them in proportion (`servers_for`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.catalog.kubernetes.cluster_state import toleration_of
from elasticdl.controller.cluster_view import CachedRecord, ManagedJob
from elasticdl.jobs.sections.pod_fields import fields_of, parse_pod_fields
from elasticdl.jobs.sections.priority import parse_priority
from elasticdl.jobs.spec import JobSpec
from elasticdl.scheduling.demand import JobDemand, Observation, Progress, RoleGroup
from elasticdl.scheduling.requirements import Toleration

WORKER, PS = "worker", "ps"
# Not counted by the planner, as machines report it differently from what pods may request.
_IGNORED = ("ephemeral-storage",)


@dataclass(kw_only=True)
class SpeedHistory:
    """Measured speeds of one job by (machines, workers), and the largest size it has run with. Lost with the
    controller, and measured again: it makes plans better, not right.
    """

    rates: dict[tuple[int, int], float] = field(default_factory=dict)
    largest_size: int = 0
    _size: tuple[int, int] = (0, 0)
    _since: float = 0.0

    # A rate is that of the last seconds: right after a resize it is of both sizes.
    SETTLED_SECONDS = 30.0
    # Weight of a new measurement.
    SMOOTHING = 0.3

    def observe(self, *, machines: int, workers: int, samples_per_second: float, now: float) -> None:
        self.largest_size = max(self.largest_size, workers)
        if (machines, workers) != self._size:
            self._size, self._since = (machines, workers), now
        if workers < 1 or samples_per_second <= 0 or now - self._since < self.SETTLED_SECONDS:
            return
        before = self.rates.get(self._size, samples_per_second)
        self.rates[self._size] = before + self.SMOOTHING * (samples_per_second - before)

    def shift(self, seconds: float) -> None:
        """The clock has jumped."""
        self._since += seconds

    def observations(self) -> tuple[Observation, ...]:
        return tuple(
            Observation.from_throughput(machines=machines, replicas=workers, samples_per_second=rate)
            for (machines, workers), rate in sorted(self.rates.items())
        )


def trainer_range(managed: ManagedJob) -> tuple[int, int]:
    """The fewest and the most trainers of the spec. A job of a Kueue queue has one size: what is pinned, or the
    minimum.
    """
    trainer = managed.job.spec.trainer
    low, high = max(trainer.min_instance, 1), max(trainer.max_instance, 1)
    if managed.job.queue_name:
        size = trainer.pinned or low
        return size, size
    return low, max(low, high)


def size_range(managed: ManagedJob, *, size_now: int = 0) -> tuple[int, int]:
    """The fewest and the most trainers now. A pinned size is the most; a job that has not reached it keeps what it has,
    since the rest may not fit.
    """
    low, high = trainer_range(managed)
    pinned = managed.job.spec.trainer.pinned
    if pinned is None or high == low:
        return low, high
    return max(low, min(size_now, pinned)), pinned


def server_range(managed: ManagedJob, spec: JobSpec) -> tuple[int, int]:
    """The fewest and the most parameter servers. Those of a program of the user's own are fixed."""
    pserver = managed.job.spec.pserver
    low = max(pserver.min_instance, 1) if pserver.max_instance or spec.nodes.num_ps else 0
    if spec.program == "command" or managed.job.queue_name:
        return low, low
    return low, max(low, pserver.max_instance)


def servers_for(workers: int, *, trainers: tuple[int, int], servers: tuple[int, int]) -> int:
    """The number of parameter servers in proportion to the trainers, between both ranges."""
    (few, many), (low, high) = trainers, servers
    if many <= few or high <= low:
        return low
    share = min(max((workers - few) / (many - few), 0.0), 1.0)
    return low + int(share * (high - low) + 0.5)


def demand_of(
    managed: ManagedJob,
    spec: JobSpec,
    record: CachedRecord | None,
    *,
    priority: int,
    history: SpeedHistory,
    workers_desired: int,
    workers_now: int = 0,
) -> JobDemand:
    """Returns the planner's view of a job. `workers_desired`: the size that its record asks for; 0 before it starts.
    `workers_now`: those that have a machine.
    """
    job = managed.job
    whole, servers = trainer_range(managed), server_range(managed, spec)
    trainers = size_range(managed, size_now=workers_now)
    if whole[1] > whole[0]:
        count = servers_for(max(workers_desired, whole[0]), trainers=whole, servers=servers)
        servers = (count, count)
    counts = {
        "master": (1, 1),
        PS: servers,
        "chief": (spec.nodes.num_chief, spec.nodes.num_chief),
        "evaluator": (spec.nodes.num_evaluator, spec.nodes.num_evaluator),
        WORKER: trainers,
    }
    return JobDemand(
        name=job.name,
        namespace=job.namespace,
        groups=tuple(
            _group(spec, role, low, high) for role, (low, high) in counts.items() if high or role == WORKER
        ),
        priority=priority,
        weight=job.spec.weight,
        submitted_at_seconds=job.created_seconds,
        observations=history.observations(),
        progress=_progress(record),
        largest_run_size=history.largest_size,
        is_pinned=job.spec.trainer.pinned is not None,
    )


def priority_class(spec: JobSpec) -> str:
    """The class of the job's workers; the lowest of them, if there are several."""
    text = spec.nodes.pod_priority(WORKER)
    return parse_priority(text).class_of(1, 2) if text else ""


def _group(spec: JobSpec, role: str, low: int, high: int) -> RoleGroup:
    units = spec.nodes.resource_request(role).to_units()
    selector, tolerations = _placement(spec, role)
    return RoleGroup(
        role=role,
        minimum=low,
        maximum=high,
        requests={name: amount for name, amount in units.items() if name not in _IGNORED},
        node_selector=selector,
        tolerations=tolerations,
    )


def _placement(spec: JobSpec, role: str) -> tuple[Mapping[str, str], tuple[Toleration, ...]]:
    text = spec.cluster.cluster_spec_json
    fields = fields_of(parse_pod_fields(text), role) if text else {}
    selector = {str(key): str(value) for key, value in (fields.get("nodeSelector") or {}).items()}
    tolerations = tuple(
        toleration_of(each, f"the tolerations of {role} pods") for each in fields.get("tolerations") or ()
    )
    return selector, tolerations


def _progress(record: CachedRecord | None) -> Progress:
    if record is None or not record.status.samples_desired:
        return Progress()
    status = record.status
    epochs = float(status.epochs) or None
    done = status.samples_done / status.samples_desired
    return Progress(
        epochs_done=done * (epochs or 0.0),
        epochs_total=epochs,
        work_done=float(status.samples_done),
        work_total=float(status.samples_desired),
    )
