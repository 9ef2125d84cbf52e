"""The plan in the making: where every instance of every job is, with changes that can be undone.

One object owns the state: the inventory's free resources, the instances of each job, and the usage of each namespace.
Admission, preemption and growth change it only through `place` and `release`, so that a step that turns out not to fit
can be rolled back exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from elasticdl.scheduling.cluster import ClusterState, Pod, Quota
from elasticdl.scheduling.growth import SpeedTable
from elasticdl.scheduling.inventory import Ints, Inventory, Mask, Spots
from elasticdl.scheduling.jobs import JobDemand, RoleGroup


class Run:
    """One job in the workspace. `spots` maps each role to machine -> instances."""

    def __init__(self, job: JobDemand, inventory: Inventory) -> None:
        self.job = job
        self.key = job.key
        self.group: RoleGroup = job.elastic_group
        self.role = self.group.role
        self.minimum = self.group.minimum
        self.maximum = self.group.maximum
        self.largest = job.largest_allowed_size
        self.requests: dict[str, Ints] = {
            group.role: inventory.vector(group.requests) for group in job.groups
        }
        self.masks: dict[str, Mask] = {
            group.role: inventory.mask(group.node_selector, group.tolerations) for group in job.groups
        }
        self.request = self.requests[self.role]
        self.mask = self.masks[self.role]
        self.share = inventory.share(self.request)
        self.main = inventory.main_resource(self.request) if self.request.any() else 0
        self.spots: dict[str, Spots] = {group.role: {} for group in job.groups}
        # Where the instances are in the cluster, and where they were when the current round of planning began.
        self.observed: dict[str, Spots] = {}
        self.observed_size = 0
        self.base: dict[str, Spots] = {}
        self.base_size = 0
        self.size = 0
        self.pods: dict[str, list[Pod]] = {group.role: [] for group in job.groups}
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
        """How much the job loses by releasing `count` instances: weight² · Δ(1/S) per dominant share."""
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
            self._guaranteed[quota.namespace] = inventory.vector(
                {name: quantity for name, quantity in quota.guaranteed.items() if name in inventory.column}
            )
        self.has_quotas = bool(self._limit)
        self._zero = np.zeros(len(inventory.resources), dtype=np.int64)

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
        return bool(asked.any()) and bool(((used + amount)[asked] <= guaranteed[asked]).all())

    def is_borrowing(self, namespace: str, request: Ints) -> bool:
        """Whether the namespace uses more than its guarantee of a resource that is requested."""
        if not self.has_quotas:
            return False
        asked = request > 0
        guaranteed = self._guaranteed.get(namespace, self._zero)
        return bool((self.used.get(namespace, self._zero)[asked] > guaranteed[asked]).any())


class Workspace:
    """All that a plan changes. `reserved` is the room kept for pods of others: pod key -> machine index."""

    def __init__(self, state: ClusterState) -> None:
        names: set[str] = set()
        for pod in state.pods:
            names.update(pod.requests)
        for job in state.jobs:
            for group in job.groups:
                names.update(group.requests)
        self.inventory = Inventory(state.machines, sorted(names))
        self.quotas = QuotaLedger(state.quotas, self.inventory)
        self.runs = {job.key: Run(job, self.inventory) for job in sorted(state.jobs, key=lambda job: job.key)}
        self.reserved: dict[str, int] = {}
        self._journal: list[tuple[Run, str, int, int]] | None = None
        self._shrunk: dict[str, Run] = {}
        self.foreign: list[Pod] = []
        self._add_pods(state.pods)
        for run in self.runs.values():
            run.size = sum(run.spots[run.role].values())
            run.observed_size = run.size
            run.was_running = run.is_running = run.is_complete() and any(run.pods.values())
            run.observed = {role: dict(spots) for role, spots in run.spots.items()}
        self.rebase()

    def rebase(self) -> None:
        """Begins a round of planning: what is placed now counts as held, as it will in the next plan."""
        for run in self.runs.values():
            if run.spots != run.base:
                run.base = {role: dict(spots) for role, spots in run.spots.items()}
            run.base_size = run.size

    def _add_pods(self, pods: tuple[Pod, ...]) -> None:
        index, inventory = self.inventory.index, self.inventory
        vectors: dict[tuple[tuple[str, int], ...], Ints] = {}
        amounts: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
        for pod in pods:
            if not pod.occupies_resources:
                continue
            run = self.runs.get(pod.job_key) if pod.job_key is not None else None
            ours = run is not None and pod.role in run.pods
            machine = None if pod.machine is None else index.get(pod.machine, -1)
            if machine == -1:
                # Its machine is gone, and the pod with it.
                continue
            if ours and run is not None and pod.role is not None:
                run.pods[pod.role].append(pod)
                if machine is not None:
                    spots = run.spots[pod.role]
                    spots[machine] = spots.get(machine, 0) + 1
            elif machine is None:
                self.foreign.append(pod)
                continue
            if machine is not None:
                kind = (machine, tuple(sorted(pod.requests.items())))
                amounts[kind] = amounts.get(kind, 0) + 1
        for (machine, requests), count in amounts.items():
            vector = vectors.get(requests)
            if vector is None:
                vector = vectors[requests] = inventory.vector(dict(requests))
            inventory.take(machine, vector * count)
        for run in self.runs.values():
            for role, spots in run.spots.items():
                self.quotas.change(run.job.namespace, run.requests[role] * sum(spots.values()))

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
