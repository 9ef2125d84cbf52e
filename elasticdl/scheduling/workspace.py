"""The plan in the making: where every instance of every job is, with changes that can be undone.

One object owns the state: the inventory's free resources, the instances of each job, and the usage of each namespace.
Admission, preemption and growth change it only through `place` and `release`, so that a step that turns out not to fit
can be rolled back exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from elasticdl.scheduling.cluster import ClusterState, Pod, Quota
from elasticdl.scheduling.demand import JobDemand, RoleGroup
from elasticdl.scheduling.growth.target_sizes import SpeedTable
from elasticdl.scheduling.inventory import Ints, Inventory, Mask, Spots
from elasticdl.scheduling.requirements import PODS


class Run:
    """A job in the workspace. `spots` maps each role to machine -> instances."""

    def __init__(self, job: JobDemand, inventory: Inventory) -> None:
        self.job = job
        self.key = job.key
        self.group: RoleGroup = job.elastic_group
        self.role = self.group.role
        self.minimum = self.group.minimum
        self.maximum = self.group.maximum
        self.largest = job.largest_allowed_size
        self.requests: dict[str, Ints] = {
            group.role: inventory.pod_vector(group.requests) for group in job.groups
        }
        self.masks: dict[str, Mask] = {
            group.role: inventory.mask(group.node_selector, group.tolerations) for group in job.groups
        }
        self.request = self.requests[self.role]
        self.mask = self.masks[self.role]
        self.share = inventory.share(self.request)
        self.main = inventory.main_resource(self.request) if inventory.has_requests(self.request) else 0
        self.spots: dict[str, Spots] = {group.role: {} for group in job.groups}
        # Where the instances are in the cluster, and where they were when the current round of planning began.
        self.observed: dict[str, Spots] = {}
        self.observed_size = 0
        self.base: dict[str, Spots] = {}
        self.base_size = 0
        self.size = 0
        self.pods: dict[str, list[Pod]] = {group.role: [] for group in job.groups}
        self.held_anything = False
        self.unbound = 0
        # Shared by all copies of this run.
        self._placement: list[dict[str, dict[str, int]] | None] = [None]
        self.was_running = False
        self.is_running = False
        self.whole_machines = job.grows_by_whole_machines
        self.per_machine = 0
        self.table: SpeedTable | None = None
        # Why the plan is as it is; the last writer wins.
        self.note = ""
        self.numbers: dict[str, float] = {}
        self.rejected = False

    @property
    def priority(self) -> int:
        return self.job.priority

    @property
    def surplus(self) -> int:
        return self.size - self.minimum if self.is_running else 0

    def fair_level(self, size: int) -> float:
        """Dominant share of the elastic instances per weight: what max–min fairness makes equal."""
        return size * self.share / self.job.weight

    def loss(self, count: int) -> float:
        """Returns a job's loss by releasing `count` instances: weight² · Δ(1/S) per dominant share."""
        after = self.size - count
        scale = self.job.weight**2 / max(self.share, 1e-12)
        if after <= 0:
            return float("inf")
        if self.table is None:
            return scale * (1.0 / after - 1.0 / self.size)
        first = int(self.table.sizes[0])
        now, then = self.table.at(self.size) * first, self.table.at(after) * first
        if after < first:
            then = float(after)
        return scale * max(1.0 / then - 1.0 / now, 0.0)

    def observe(self) -> None:
        """Takes the instances as they are for those of the cluster."""
        self.size = self.observed_size = self.base_size = sum(self.spots[self.role].values())
        self.held_anything = any(self.pods.values())
        self.unbound = sum(pod.machine is None for pod in self.pods[self.role])
        self.was_running = self.is_running = self.is_complete() and self.held_anything
        self._placement = [None]
        self.observed = self.base = {role: dict(spots) for role, spots in self.spots.items()}

    @property
    def observed_placement(self) -> dict[str, dict[str, int]] | None:
        """The observed instances by machine name, if a decision has needed them before."""
        return self._placement[0]

    def remember_placement(self, placement: dict[str, dict[str, int]]) -> None:
        self._placement[0] = placement

    def fork(self) -> Run:
        copy = object.__new__(Run)
        copy.__dict__.update(self.__dict__)
        copy.spots = {role: dict(spots) for role, spots in self.spots.items()}
        copy.numbers = {}
        return copy

    def is_complete(self) -> bool:
        """Whether every role group has at least its minimum."""
        return all(sum(self.spots[group.role].values()) >= group.minimum for group in self.job.groups)


class QuotaLedger:
    """Usage of each namespace against its quota. Namespaces without a quota have no limit and no guarantee."""

    def __init__(self, quotas: Iterable[Quota], inventory: Inventory) -> None:
        self._limit: dict[str, Ints] = {}
        self._guaranteed: dict[str, Ints] = {}
        self.used: dict[str, Ints] = {}
        none = np.int64(2**62)
        for quota in quotas:
            limit = np.full(len(inventory.resources), none, dtype=np.int64)
            for name, quantity in quota.limit.items():
                if name in inventory.column:
                    limit[inventory.column[name]] = quantity
            self._limit[quota.namespace] = limit
            guaranteed = inventory.vector(
                {name: quantity for name, quantity in quota.guaranteed.items() if name in inventory.column}
            )
            self._guaranteed[quota.namespace] = guaranteed
            if PODS not in quota.guaranteed and inventory.pods_column is not None:
                guaranteed[inventory.pods_column] = none
        self.has_quotas = bool(self._limit)
        self._zero = np.zeros(len(inventory.resources), dtype=np.int64)
        # A quota that does not name pods is about what they request.
        self._nothing_guaranteed = inventory.pod_vector({}) * none
        self._has_requests = inventory.has_requests

    def fork(self) -> QuotaLedger:
        copy = object.__new__(QuotaLedger)
        copy.__dict__.update(self.__dict__)
        copy.used = dict(self.used)
        return copy

    def change(self, namespace: str, amount: Ints) -> None:
        if self.has_quotas:
            self.used[namespace] = self.used.get(namespace, self._zero) + amount

    def room(self, namespace: str, request: Ints, wanted: int) -> int:
        """Returns how many instances stay within the namespace's limit."""
        limit = self._limit.get(namespace)
        if limit is None:
            return wanted
        left = limit - self.used.get(namespace, self._zero)
        asked = np.flatnonzero(request)
        if not len(asked):
            return wanted
        return max(0, min(wanted, int((left[asked] // request[asked]).min())))

    def allows(self, namespace: str, amount: Ints) -> bool:
        limit = self._limit.get(namespace)
        asked = amount > 0
        return limit is None or bool(
            ((self.used.get(namespace, self._zero) + amount)[asked] <= limit[asked]).all()
        )

    def could_ever_allow(self, namespace: str, amount: Ints) -> bool:
        limit = self._limit.get(namespace)
        return limit is None or bool((amount <= limit).all())

    def is_within_guarantee(self, namespace: str, amount: Ints) -> bool:
        """Whether the namespace would still be within its guarantee after using `amount` more."""
        guaranteed = self._guaranteed.get(namespace)
        if guaranteed is None:
            return False
        asked = amount > 0
        used = self.used.get(namespace, self._zero)
        return self._has_requests(amount) and bool(((used + amount)[asked] <= guaranteed[asked]).all())

    def is_borrowing(self, namespace: str, request: Ints) -> bool:
        """Whether the namespace uses more than its guarantee of a resource that is requested."""
        if not self.has_quotas:
            return False
        asked = request > 0
        guaranteed = self._guaranteed.get(namespace, self._nothing_guaranteed)
        return bool((self.used.get(namespace, self._zero)[asked] > guaranteed[asked]).any())


class Workspace:
    """The state that a plan changes. `reserved` is the room kept for pods of others: pod key -> machine index."""

    def __init__(self, state: ClusterState) -> None:
        # At least one column, so that no array is empty.
        names: set[str] = {"cpu"}
        for pod in state.pods:
            names.update(pod.requests)
        for job in state.jobs:
            for group in job.groups:
                names.update(group.requests)
        if any(PODS in machine.allocatable for machine in state.machines):
            names.add(PODS)
        self.inventory = Inventory(state.machines, sorted(names))
        self.quotas = QuotaLedger(state.quotas, self.inventory)
        self.runs = {job.key: Run(job, self.inventory) for job in sorted(state.jobs, key=lambda job: job.key)}
        self.reserved: dict[str, int] = {}
        self._journal: list[tuple[Run, str, int, int]] | None = None
        self._shrunk: dict[str, Run] = {}
        self.foreign: list[Pod] = []
        self._add_pods(state.pods)
        for run in self.runs.values():
            run.observe()

    def rebase(self) -> None:
        """Begins a round of planning: what is placed now counts as held, as it will in the next plan."""
        for run in self.runs.values():
            if run.spots != run.base:
                run.base = {role: dict(spots) for role, spots in run.spots.items()}
            run.base_size = run.size

    def _add_pods(self, pods: Iterable[Pod]) -> None:
        amounts: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
        for pod in pods:
            machine = self._register(pod)
            if machine is not None:
                kind = (machine, tuple(sorted(pod.requests.items())))
                amounts[kind] = amounts.get(kind, 0) + 1
        vectors: dict[tuple[tuple[str, int], ...], Ints] = {}
        for (machine, requests), count in amounts.items():
            vector = vectors.get(requests)
            if vector is None:
                vector = vectors[requests] = self.inventory.pod_vector(dict(requests))
            self.inventory.take(machine, vector * count)
        for run in self.runs.values():
            for role, spots in run.spots.items():
                self.quotas.change(run.job.namespace, run.requests[role] * sum(spots.values()))

    def _register(self, pod: Pod) -> int | None:
        """Notes a pod with its job or as someone else's; returns the machine whose resources it takes."""
        if not pod.occupies_resources:
            return None
        run = self.runs.get(pod.job_key) if pod.job_key is not None else None
        machine = None if pod.machine is None else self.inventory.index.get(pod.machine, -1)
        if machine == -1:
            # Its machine is gone, and the pod with it.
            return None
        if run is not None and pod.role is not None and pod.role in run.pods:
            run.pods[pod.role].append(pod)
            if machine is not None:
                spots = run.spots[pod.role]
                spots[machine] = spots.get(machine, 0) + 1
        elif machine is None:
            self.foreign.append(pod)
        return machine

    def update(
        self, added: Iterable[Pod], removed: Iterable[Pod], jobs: Iterable[JobDemand], gone: Iterable[str]
    ) -> None:
        """Applies changes of pods and jobs; `removed` are pods as they were known. Machines stay as they are.

        A job that is gone must have no pods left, or they are removed with it in the same call.
        """
        touched: dict[str, Run] = {}
        for pod in removed:
            run = self.runs.get(pod.job_key) if pod.job_key is not None else None
            machine = None if pod.machine is None else self.inventory.index.get(pod.machine, -1)
            if not pod.occupies_resources or machine == -1:
                continue
            if run is not None and pod.role is not None and pod.role in run.pods:
                run.pods[pod.role] = [other for other in run.pods[pod.role] if other.key != pod.key]
                if machine is not None:
                    spots = run.spots[pod.role]
                    spots[machine] -= 1
                    if spots[machine] == 0:
                        del spots[machine]
                    self.quotas.change(run.job.namespace, -run.requests[pod.role])
                touched[run.key] = run
            elif machine is None:
                self.foreign = [other for other in self.foreign if other.key != pod.key]
            if machine is not None:
                self.inventory.take(machine, -self.inventory.pod_vector(pod.requests))
        for key in gone:
            self.runs.pop(key, None)
            touched.pop(key, None)
        is_new = False
        for job in jobs:
            run = Run(job, self.inventory)
            known = self.runs.get(job.key)
            if known is not None:
                run.pods, run.spots = known.pods, known.spots
            is_new |= known is None
            touched[job.key] = self.runs[job.key] = run
        if is_new:
            self.runs = dict(sorted(self.runs.items()))
        for pod in added:
            machine = self._register(pod)
            run = self.runs.get(pod.job_key) if pod.job_key is not None else None
            if machine is not None:
                self.inventory.take(machine, self.inventory.pod_vector(pod.requests))
                if run is not None and pod.role is not None and pod.role in run.pods:
                    self.quotas.change(run.job.namespace, run.requests[pod.role])
            if run is not None:
                touched[run.key] = run
        for run in touched.values():
            run.observe()

    def fork(self) -> Workspace:
        """Returns a copy to plan in; the original keeps the observed state."""
        copy = object.__new__(Workspace)
        copy.inventory = self.inventory.fork()
        copy.quotas = self.quotas.fork()
        copy.runs = {key: run.fork() for key, run in self.runs.items()}
        copy.reserved = {}
        copy.foreign = self.foreign
        copy._journal = None
        copy._shrunk = {}
        return copy

    # -- changes that can be undone

    def place(self, run: Run, role: str, spots: Mapping[int, int]) -> None:
        total = 0
        held = run.spots[role]
        request = run.requests[role]
        for machine, count in spots.items():
            held[machine] = held.get(machine, 0) + count
            if held[machine] == 0:
                del held[machine]
            total += count
            if self._journal is not None:
                self._journal.append((run, role, machine, count))
        self.inventory.take_all(spots, request)
        self.quotas.change(run.job.namespace, request * total)
        if role == run.role:
            run.size += total
            if total < 0:
                self._shrunk[run.key] = run

    def take_shrunk(self) -> list[Run]:
        """Returns the jobs that released instances since the last call."""
        shrunk, self._shrunk = list(self._shrunk.values()), {}
        return shrunk

    def release(self, run: Run, role: str, spots: Mapping[int, int]) -> None:
        self.place(run, role, {machine: -count for machine, count in spots.items()})

    def release_all(self, run: Run) -> None:
        for role in run.spots:
            self.release(run, role, dict(run.spots[role]))

    def begin(self) -> None:
        self._journal = []

    def commit(self) -> None:
        self._journal = None

    def roll_back(self) -> None:
        """Undoes everything since `begin`."""
        journal, self._journal = self._journal or [], None
        for run, role, machine, count in reversed(journal):
            self.place(run, role, {machine: -count})

    @property
    def mark(self) -> int:
        return len(self._journal or [])

    def roll_back_to(self, mark: int) -> None:
        """Undoes everything since a mark of the same transaction."""
        assert self._journal is not None
        journal, self._journal = self._journal, None
        for run, role, machine, count in reversed(journal[mark:]):
            self.place(run, role, {machine: -count})
        self._journal = journal[:mark]
