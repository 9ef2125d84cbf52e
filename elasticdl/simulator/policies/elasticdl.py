"""Our planner as a policy: turns the view of the simulator into the planner's input, and its decisions into
placements.

The planner is the one that the controller runs. It gets what a controller has: pods, requests, what the
masters have measured, and what users declare. Batch sizes are chosen by the same fitted model that the
planner plans with.
"""

from __future__ import annotations

from elasticdl.scheduling.cluster import ClusterState, Pod, PodPhase
from elasticdl.scheduling.decisions import Admit, Grow, Hold, Move, Plan, Preempt, Reject, Shrink
from elasticdl.scheduling.demand import JobDemand, Observation
from elasticdl.scheduling.growth.speed import SpeedModel, choose_batch, fit_speed
from elasticdl.scheduling.planner import Planner
from elasticdl.scheduling.planner_settings import PlannerSettings
from elasticdl.simulator.policy import ClusterView, JobView, PodView, PolicyPlan
from elasticdl.simulator.work import BatchChooser, TracedProgress, split_batch
from elasticdl.simulator.workload import WorkloadJob


class PlannerPolicy:
    def __init__(self, *, settings: PlannerSettings | None = None, interval_seconds: float = 15.0) -> None:
        self._planner = Planner(settings)
        self._interval = interval_seconds
        self._batches = BatchSizes()
        self.last_plan: Plan | None = None

    @property
    def name(self) -> str:
        return "elasticdl"

    @property
    def interval_seconds(self) -> float | None:
        return self._interval

    @property
    def stop_seconds(self) -> float | None:
        return None

    @property
    def chooser(self) -> BatchChooser | None:
        return self._batches

    def sizes(self, job: WorkloadJob) -> tuple[int, int]:
        return job.elastic.minimum, job.elastic.maximum

    def plan(self, view: ClusterView) -> PolicyPlan:
        plan = self.last_plan = self._planner.plan(state_of(view))
        index = {machine.name: number for number, machine in enumerate(view.machines)}
        keys = {job.job.key: name for name, job in view.jobs.items()}
        placements: dict[str, dict[str, dict[int, int]]] = {}
        rejected: dict[str, str] = {}
        victims: set[str] = set()
        for decision in plan.decisions:
            name = keys[decision.job]
            if isinstance(decision, Reject):
                rejected[name] = decision.reason
            elif not isinstance(decision, Hold):
                placements[name] = {
                    role: {index[machine]: count for machine, count in machines.items() if count > 0}
                    for role, machines in decision.placement.items()
                }
                if isinstance(decision, Preempt):
                    placements[name] = {}
                if isinstance(decision, Grow | Shrink | Move | Preempt):
                    victims |= {victim.partition("/")[2] for victim in decision.victims}
                assert isinstance(decision, Admit | Grow | Shrink | Move | Preempt)
        return PolicyPlan(
            placements=placements,
            rejected=rejected,
            victims=frozenset(victims),
            reserved={pod.partition("/")[2]: index[machine] for pod, machine in plan.reserved.items()},
        )


def state_of(view: ClusterView) -> ClusterState:
    """Returns the planner's input for what a controller sees."""
    names = [machine.name for machine in view.machines]
    pods: list[Pod] = []
    for job in view.jobs.values():
        pods += [_pod(pod, names, job.job.namespace, job.job.name) for pod in job.pods]
    pods += [_pod(pod, names, "default", None) for pod in view.service_pods]
    return ClusterState(
        now_seconds=view.now_seconds,
        machines=tuple(view.machines),
        pods=tuple(pods),
        jobs=tuple(_demand(job, view) for job in view.jobs.values()),
        quotas=tuple(view.quotas),
    )


def _pod(pod: PodView, machines: list[str], namespace: str, job: str | None) -> Pod:
    return Pod(
        name=pod.name,
        namespace=namespace,
        requests=pod.requests,
        machine=None if pod.machine is None else machines[pod.machine],
        priority=pod.priority,
        job=job,
        role=pod.role if job is not None else None,
        phase=PodPhase.RUNNING if pod.is_running else PodPhase.PENDING,
    )


def _demand(view: JobView, cluster: ClusterView) -> JobDemand:
    job = view.job
    return JobDemand(
        name=job.name,
        namespace=job.namespace,
        groups=job.groups,
        priority=job.priority,
        weight=job.weight,
        submitted_at_seconds=job.submitted_at_seconds,
        started_at_seconds=view.started_at_seconds,
        observations=view.progress.observations,
        batch=job.work.batch_limits,
        noise=view.progress.noise,
        progress=view.progress.reported(),
        resize_cost_seconds=cluster.rules.resize_cost,
        last_resize_at_seconds=view.last_resize_at_seconds,
        resizes=view.resizes,
        largest_run_size=view.largest_run_size,
    )


class BatchSizes:
    """Chooses batch sizes by the model that is fitted to what a job has shown; remembers fits and choices."""

    def __init__(self) -> None:
        self._models: dict[TracedProgress, tuple[tuple[Observation, ...], SpeedModel | None]] = {}
        self._choices: dict[TracedProgress, tuple[object, tuple[int, int]]] = {}

    def __call__(self, job: TracedProgress, machines: int, replicas: int) -> tuple[int, int]:
        program = job.program
        observations = job.observations
        if not observations:
            return split_batch(program, max(program.init_batch, program.min_local_batch * replicas), replicas)
        key = (observations, job.noise, machines, replicas)
        known = self._choices.get(job)
        if known is not None and known[0] == key:
            return known[1]
        held = self._models.get(job)
        if held is None or held[0] is not observations:
            held = self._models[job] = (observations, fit_speed(observations))
        model, limits = held[1], job.work.batch_limits
        if model is None or limits is None:
            return split_batch(program, max(program.init_batch, program.min_local_batch * replicas), replicas)
        choice = choose_batch(model, limits, job.noise, machines=machines, replicas=replicas)
        batch = replicas * choice.local_batch * (choice.accumulation_steps + 1)
        if replicas == 1 and batch > program.init_batch and choice.accumulation_steps == 0:
            result = split_batch(program, batch, replicas)
        else:
            result = (choice.local_batch, choice.accumulation_steps)
        self._choices[job] = (key, result)
        return result
