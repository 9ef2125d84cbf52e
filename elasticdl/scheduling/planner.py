"""The planner: a cluster's state in, a plan out.

Steps, each in its own module:
    1. serve claims (`admission`, `preemption`): unscheduled pods of others and waiting jobs, by priority and age;
    2. leave machines that are about to be removed (`evacuation`);
    3. fair shares (`shares`) for jobs of unknown speed;
    4. the market (`growth`, `allocation`) for measured jobs;
    5. all of it again until nothing changes; then one decision per job with its reason.

The result depends only on the state: models are cached between calls to save time, never to remember.

Failure modes: input that contradicts itself raises `SchedulingInputError`; an empty cluster gives a plan in which every
job is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable

from elasticdl.scheduling.admission import serve_claims
from elasticdl.scheduling.cluster import Changes, ClusterState, Pod
from elasticdl.scheduling.decisions import Admit, Decision, Grow, Hold, Move, Plan, Preempt, Reject, Shrink
from elasticdl.scheduling.errors import SchedulingInputError
from elasticdl.scheduling.evacuation import evacuate
from elasticdl.scheduling.growth.allocation import MarketAllocator
from elasticdl.scheduling.growth.resize import shrink_to
from elasticdl.scheduling.growth.shares import LoadLimit, balance_fair_shares, fill_fair_shares
from elasticdl.scheduling.growth.speed import SpeedCache, SpeedModel
from elasticdl.scheduling.growth.target_sizes import SpeedTable, candidate_sizes, speed_table, work_left
from elasticdl.scheduling.inventory import count_fits
from elasticdl.scheduling.planner_settings import PlannerSettings
from elasticdl.scheduling.quantities import request_text
from elasticdl.scheduling.workspace import Run, Workspace

# Rounds of admission and growth until nothing changes; two are usual.
_MOST_ROUNDS = 8
# The ratio of two speeds that are not worth telling apart.
_SAME_SPEED = 0.995


class Planner:
    """Plans repeatedly and keeps fitted models and arrays between calls; the result depends only on the state."""

    def __init__(self, settings: PlannerSettings | None = None) -> None:
        self.settings = settings or PlannerSettings()
        self._speeds = SpeedCache()
        self._tables: dict[str, tuple[object, SpeedTable | None]] = {}
        self._state: _KnownState | None = None
        self._observed: Workspace | None = None

    def plan(self, state: ClusterState) -> Plan:
        """Returns the plan for one state of the cluster."""
        self._state = _KnownState(state)
        self._observed = Workspace(state)
        return self._plan()

    def replan(self, changes: Changes) -> Plan:
        """Returns the plan for the last state with changes: the same as `plan` of the whole state, sooner."""
        known, observed = self._state, self._observed
        if known is None or observed is None:
            raise SchedulingInputError("replan: there is no earlier state; call plan(state) first")
        known.check(changes)
        replaced = [known.pods[pod.key] for pod in changes.pods if pod.key in known.pods]
        removed = [known.pods[key] for key in changes.removed_pods]
        resources = observed.inventory.column
        is_same_shape = not changes.machines and not changes.removed_machines
        is_same_shape &= all(name in resources for pod in changes.pods for name in pod.requests)
        for job in changes.jobs:
            before = known.jobs.get(job.key)
            is_same_shape &= all(name in resources for group in job.groups for name in group.requests)
            if before is None:
                # Pods that had no job until now were counted as someone else's.
                is_same_shape &= job.key not in known.orphans
            else:
                is_same_shape &= before.groups == job.groups
        # Pods that outlive their job count as someone else's.
        leaving = set(changes.removed_pods)
        is_same_shape &= all(
            pod.key in leaving
            for key in changes.removed_jobs
            for pods in observed.runs[key].pods.values()
            for pod in pods
        )
        known.apply(changes)
        if is_same_shape:
            observed.update(changes.pods, [*replaced, *removed], changes.jobs, changes.removed_jobs)
        else:
            self._observed = Workspace(known.state())
        return self._plan()

    def _plan(self) -> Plan:
        assert self._observed is not None
        work = self._observed.fork()
        self._measure(work)
        _respect_maximums(work)
        for _ in range(_MOST_ROUNDS):
            # Growth may leave room that a waiting job can use; what it changes, the next plan would see.
            served = serve_claims(work, preempt=self.settings.preempt)
            moved = evacuate(work)
            if not self._grow(work) and not served and not moved:
                break
            work.rebase()
        return Plan(
            decisions=tuple(decide(run, work) for run in work.runs.values()),
            reserved={pod: work.inventory.names[machine] for pod, machine in sorted(work.reserved.items())},
        )

    def _measure(self, work: Workspace) -> None:
        """Fits models and computes the speed tables of all jobs that have measurements."""
        capacity: dict[object, int] = {}
        measured = [run.job for run in work.runs.values() if run.job.observations]
        models = self._speeds.models(measured)
        tables: dict[str, tuple[object, SpeedTable | None]] = {}
        for run in work.runs.values():
            kind = (run.request.tobytes(), id(run.mask))
            if kind not in capacity:
                fits = count_fits(work.inventory.allocatable, run.request, run.mask)
                has_requests = work.inventory.has_requests(run.request)
                capacity[kind] = int(fits.max(initial=0)) if has_requests else 0
            run.per_machine = capacity[kind]
            model = models.get(run.key)
            if model is None:
                continue
            known = work_left(run.job) is not None
            if run.job.is_pinned or (not known and run.job.batch is None):
                # Fair shares: a pinned size is no question of speed, and without an end in sight there is no completion
                # time to improve.
                continue
            key = (
                model,
                run.job.batch,
                run.job.noise,
                run.job.progress,
                run.minimum,
                run.largest,
                run.per_machine,
            )
            held = self._tables.get(run.key)
            if held is None or held[0] != key:
                held = (key, self._table(run, model))
            tables[run.key] = held
            run.table = held[1]
        self._tables = tables

    def _table(self, run: Run, model: SpeedModel) -> SpeedTable | None:
        smallest, largest = max(run.minimum, 1), max(run.largest, 1)
        sizes = candidate_sizes(smallest, largest, run.per_machine, whole_machines=run.whole_machines)
        spread_sizes = None
        if run.whole_machines and run.per_machine > 0:
            spread_sizes = candidate_sizes(smallest, largest, run.per_machine, whole_machines=False)
        return speed_table(
            run.job,
            model,
            sizes,
            run.per_machine,
            self.settings.unknown_work_seconds,
            spread_sizes=spread_sizes,
        )

    def _grow(self, work: Workspace) -> bool:
        """Makes a round of growth, highest priority first; returns whether anything changed."""
        changed = False
        limit = LoadLimit(work, self.settings.max_load_desired)
        running = [run for run in work.runs.values() if run.is_running]
        pool = [run for run in running if run.table is not None]
        for priority in sorted({run.priority for run in running}, reverse=True):
            tier = [run for run in running if run.priority == priority]
            fair = [run for run in tier if run.table is None]
            changed |= fill_fair_shares(work, fair, limit)
            changed |= balance_fair_shares(work, fair, pool, limit)
            measured = [run for run in tier if run.table is not None]
            for main in sorted({run.main for run in measured}):
                allocator = MarketAllocator(
                    work,
                    [run for run in measured if run.main == main],
                    limit=limit,
                    horizon_seconds=self.settings.horizon_seconds,
                    hysteresis=self.settings.hysteresis,
                )
                lower = [run for run in running if run.priority < priority and run.main == main]
                changed |= allocator.improve(lower)
        return changed


class _KnownState:
    """The last state by name, so that changes can be applied to it."""

    def __init__(self, state: ClusterState) -> None:
        self.now_seconds = state.now_seconds
        self.machines = {machine.name: machine for machine in state.machines}
        self.pods = {pod.key: pod for pod in state.pods}
        self.jobs = {job.key: job for job in state.jobs}
        self.quotas = state.quotas
        # Jobs that pods name and that are not among the jobs.
        self.orphans = {pod.job_key for pod in state.pods if pod.job_key is not None} - self.jobs.keys()

    def check(self, changes: Changes) -> None:
        for kind, removed, known in (
            ("machine", changes.removed_machines, self.machines.keys()),
            ("pod", changes.removed_pods, self.pods.keys()),
            ("job", changes.removed_jobs, self.jobs.keys()),
        ):
            for name in removed:
                if name not in known:
                    raise SchedulingInputError(f"replan: {kind} {name} is removed but not known")

    def apply(self, changes: Changes) -> None:
        self.now_seconds = changes.now_seconds
        for name in changes.removed_machines:
            del self.machines[name]
        for key in changes.removed_pods:
            del self.pods[key]
        for key in changes.removed_jobs:
            del self.jobs[key]
        self.machines.update((machine.name, machine) for machine in changes.machines)
        self.pods.update((pod.key, pod) for pod in changes.pods)
        self.jobs.update((job.key, job) for job in changes.jobs)
        self.orphans |= {pod.job_key for pod in changes.pods if pod.job_key is not None} - self.jobs.keys()
        if changes.removed_jobs:
            # Their pods may outlive them, and find a job of the same name.
            self.orphans |= {*changes.removed_jobs} & {pod.job_key for pod in self.pods.values()}

    def state(self) -> ClusterState:
        return ClusterState(
            now_seconds=self.now_seconds,
            machines=tuple(self.machines.values()),
            pods=tuple(self.pods.values()),
            jobs=tuple(self.jobs.values()),
            quotas=self.quotas,
        )


def plan(state: ClusterState, settings: PlannerSettings | None = None) -> Plan:
    """Returns the plan for one state of a cluster."""
    return Planner(settings).plan(state)


def _respect_maximums(work: Workspace) -> None:
    """Shrinks jobs whose maximum has been lowered, or whose size has been pinned, below what they have."""
    for run in work.runs.values():
        if run.is_running and run.size > run.maximum:
            shrink_to(work, run, run.maximum)
            run.note = (
                f"its size is pinned to {run.maximum}"
                if run.job.is_pinned
                else f"{run.maximum} is its maximum now"
            )


def decide(run: Run, work: Workspace) -> Decision:
    """Returns the decision for one job, from where its instances were and are."""
    names = work.inventory.names
    is_same = run.spots == run.observed
    placement = run.observed_placement if is_same else None
    if placement is None:
        placement = {
            role: {names[machine]: count for machine, count in sorted(spots.items())}
            for role, spots in run.spots.items()
        }
        if is_same:
            run.remember_placement(placement)
    unbound = run.unbound
    previous = run.observed_size + unbound
    numbers = dict(run.numbers)
    numbers.update(minimum=run.minimum, maximum=run.maximum, share=run.fair_level(run.size))
    if run.table is not None:
        numbers.update(
            speed=run.table.at(run.size) if run.size else 0.0, work_left_seconds=run.table.work_left_seconds
        )
    victims = () if is_same and not unbound else tuple(pod.key for pod in _victims(run, work.inventory.index))
    common = {
        "job": run.key,
        "size": run.size,
        "previous_size": previous,
        "placement": placement,
        "numbers": numbers,
    }
    held_anything = run.held_anything
    if not run.is_running:
        reason = run.note or "it waits"
        if held_anything:
            return Preempt(reason=f"Stops and waits: {reason}.", victims=victims, **common)  # type: ignore[arg-type]
        if run.rejected:
            return Reject(reason=f"Rejected: {reason}.", **common)  # type: ignore[arg-type]
        return Hold(reason=f"Waits: {reason}.", **common)  # type: ignore[arg-type]
    if not run.was_running and not held_anything:
        reason = f"Starts with {run.size} of {run.minimum} to {run.maximum}: all role groups fit."
        return Admit(reason=reason, **common)  # type: ignore[arg-type]
    if is_same and not victims and not unbound:
        return Hold(reason=_why_hold(run), **common)  # type: ignore[arg-type]
    if run.size > previous:
        reason = f"Grows from {previous} to {run.size}: {_why_grow(run, previous)}."
        return Grow(reason=reason, victims=victims, **common)  # type: ignore[arg-type]
    if run.size < previous:
        return Shrink(
            reason=f"Shrinks from {previous} to {run.size}: {_why_shrink(run, previous)}.",
            victims=victims,
            **common,  # type: ignore[arg-type]
        )
    return Move(reason=_why_move(run, victims), victims=victims, **common)  # type: ignore[arg-type]


def _victims(run: Run, index: dict[str, int]) -> Iterable[Pod]:
    """Pods that the plan has no place for: the newest names on each machine, and unbound ones in excess."""
    moved = run.spots != run.observed
    for role, pods in run.pods.items():
        spots = dict(run.spots[role])
        unbound = [pod for pod in pods if pod.machine is None]
        bound = sum(run.observed[role].values())
        if moved:
            by_machine: dict[int, list[Pod]] = {}
            for pod in pods:
                if pod.machine is not None:
                    by_machine.setdefault(index[pod.machine], []).append(pod)
            for machine, there in sorted(by_machine.items()):
                keep = spots.get(machine, 0)
                if keep < len(there):
                    yield from sorted(there, key=_pod_order)[keep:]
        # Unbound pods take the places that no bound pod has.
        kept = sum(min(count, run.observed[role].get(machine, 0)) for machine, count in spots.items())
        places = sum(spots.values()) - kept
        if len(unbound) > places and bound + len(unbound) > sum(spots.values()):
            yield from sorted(unbound, key=_pod_order)[max(places, 0) :]


def _pod_order(pod: Pod) -> tuple[int, str]:
    """Numbers in names count as numbers: worker-10 is newer than worker-9."""
    tail = pod.name.rpartition("-")[2]
    return (int(tail) if tail.isdigit() else 0, pod.name)


def _why_hold(run: Run) -> str:
    if run.size >= run.maximum:
        limit = "the size that is pinned" if run.job.is_pinned else "its maximum"
        return f"Keeps {run.size}: {limit}."
    if run.size >= run.largest:
        return f"Keeps {run.size}: it may grow to at most twice the size it has run with ({run.job.largest_run_size})."
    if run.job.is_pinned:
        return (
            f"Keeps {run.size} of the {run.maximum} that are pinned: {run.maximum - run.size} more of "
            f"{request_text(run.job.elastic_group.requests)} wait until other jobs or pods release capacity."
        )
    if run.table is None:
        return f"Keeps {run.size}: no room for more at its fair share."
    return f"Keeps {run.size}: no change of size would pay for its resize of {run.job.resize_cost_seconds:.0f} s."


def _why_grow(run: Run, previous: int) -> str:
    if run.size <= run.minimum:
        return "its minimum fits"
    if run.job.is_pinned:
        return f"its size is pinned to {run.maximum}"
    if run.table is None:
        return "capacity is free and its share is lowest"
    if previous <= 0:
        return "it starts"
    ratio = run.table.at(run.size) / max(run.table.at(previous), 1e-12)
    return f"it trains {ratio:.2f} times as fast, which pays for the resize"


def _why_shrink(run: Run, previous: int) -> str:
    """The step of the plan that has released instances has noted why; the market's releases have a speed instead."""
    if run.size >= run.observed_size:
        return f"no machine has room for {previous - run.size} of its pods"
    if run.note:
        return run.note
    if run.table is None or not run.was_running:
        return "this is what fits of it, since it lost instances and was placed again"
    ratio = run.table.at(run.size) / max(run.table.at(previous), 1e-12)
    if ratio >= _SAME_SPEED:
        return "it trains as fast with fewer"
    return f"it keeps {ratio:.0%} of its speed and others gain more"


def _why_move(run: Run, victims: tuple[str, ...]) -> str:
    if run.note:
        return f"Keeps {run.size} instances and changes machines: {run.note}."
    if not victims:
        return f"Keeps {run.size}: there is room for its pods that no machine has yet."
    if not run.was_running:
        return f"Keeps {run.size} instances and changes machines: it lost instances and was placed again."
    return f"Keeps {run.size} instances and changes machines, to leave whole machines to others."
