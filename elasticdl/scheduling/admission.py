"""Admission: a waiting job starts with all its role groups at their minimum, on actual machines, or holds nothing.

Claims are served by priority, then age. Jobs that lost instances and are below their minimum come before waiting jobs
of the same priority; unscheduled pods of others come between the two. The first job that has to wait (the head of the
queue) gets a reservation: the machines on which it will fit when running jobs of at most its priority are gone. Jobs
behind it are backfilled only outside of that reservation, so that they cannot delay it.

Failure modes: a job that fits on no subset of the machines even when they are empty, or exceeds the limit of its
namespace's quota, is rejected and reserves nothing.
"""

from __future__ import annotations

import numpy as np

from elasticdl.scheduling.cluster import Pod
from elasticdl.scheduling.inventory import Ints, Mask, Spots, count_fits
from elasticdl.scheduling.preemption import Donors, make_room, preempt_for
from elasticdl.scheduling.workspace import Run, Workspace


def serve_claims(work: Workspace, *, preempt: bool) -> bool:
    """Serves unscheduled pods of others, incomplete jobs and waiting jobs, in order; returns whether any was served."""
    claims: list[tuple[tuple[float, int, float, str], Run | Pod]] = []
    for pod in work.foreign:
        if pod.key in work.reserved:
            continue
        claims.append(((-pod.priority, 1, 0.0, pod.key), pod))
    for run in work.runs.values():
        if not run.is_running and not run.rejected:
            incomplete = 0 if any(run.spots[role] for role in run.spots) else 2
            claims.append(((-run.priority, incomplete, run.job.submitted_at_seconds, run.key), run))
    claims.sort(key=lambda claim: claim[0])
    queue = _Queue(work, preempt=preempt)
    for _, claim in claims:
        if isinstance(claim, Pod):
            queue.serve_pod(claim)
        else:
            queue.serve_job(claim)
    queue.close()
    return queue.served


class _Queue:
    def __init__(self, work: Workspace, *, preempt: bool) -> None:
        self._work = work
        self._preempt = preempt
        self.served = False
        self._head: Run | None = None
        # Taken from the free resources while the queue is served, given back at the end.
        self._withheld: list[tuple[int, Ints]] = []
        self._closed: Mask = np.zeros(len(work.inventory.names), dtype=bool)
        # Requests of pods that found no room, by priority; equal ones need not be tried again.
        self._hopeless: set[object] = set()

    # -- pods of others

    def serve_pod(self, pod: Pod) -> None:
        work = self._work
        request = work.inventory.pod_vector(pod.requests)
        mask = work.inventory.mask(pod.node_selector, pod.tolerations)
        kind = (pod.priority, request.tobytes(), id(mask))
        if kind in self._hopeless:
            return
        spots = work.inventory.pack(request, mask, 1)
        if spots is None:
            spots = self._force(request, mask, pod)
        if spots is None:
            self._hopeless.add(kind)
            return
        machine = next(iter(spots))
        work.inventory.take(machine, request)
        work.reserved[pod.key] = machine
        self.served = True

    def _force(self, request: Ints, mask: Mask, pod: Pod) -> Spots | None:
        """Makes room for a pod of someone else, which only jobs of strictly lower priority do."""
        work = self._work

        def find() -> bool:
            spots = work.inventory.pack(request, mask, 1)
            machine = make_room(work, request, mask, may_release) if spots is None else next(iter(spots))
            if machine is None:
                return False
            found.append(machine)
            # Taken already, so that a job that is put back does not take it.
            work.inventory.take(machine, request)
            return True

        def may_release(run: Run) -> bool:
            return run.priority < pod.priority

        found: list[int] = []
        work.take_shrunk()
        work.begin()
        if find() or (self._preempt and preempt_for(work, pod.priority, find)):
            work.commit()
            work.inventory.take(found[0], -request)
            _note_shrunk(work, f"pod {pod.key} of priority {pod.priority}")
            return {found[0]: 1}
        work.roll_back()
        return None

    # -- jobs

    def serve_job(self, run: Run) -> None:
        work = self._work
        held = {role: dict(spots) for role, spots in run.spots.items()}
        total = minimum_request(run)
        work.take_shrunk()
        work.begin()
        work.release_all(run)
        if not work.quotas.allows(run.job.namespace, total):
            run.rejected = not work.quotas.could_ever_allow(run.job.namespace, total)
            limit = "exceeds the limit of" if run.rejected else "has to wait for the quota of"
            run.note = f"its minimum {limit} namespace {run.job.namespace}"
            work.commit()
            return
        kind = _kind(run)
        if kind not in self._hopeless and (self._place_minimum(run, held) or self._preempt_for(run, held)):
            self._keep_closed(run, held)
            work.commit()
            run.is_running = self.served = True
            run.note = ""
            _note_shrunk(work, f"job {run.key}")
            return
        # All or nothing: what the job still held is free for others.
        work.roll_back()
        work.release_all(run)
        run.is_running = False
        if not any(held.values()):
            self._hopeless.add(kind)
        if lacking := _lacking_when_empty(work, run):
            run.rejected = True
            run.note = f"its minimum does not fit on these machines even when they are empty: {lacking}"
            return
        run.note = f"its minimum does not fit ({run.job.minimum_text}){_full_of_pods(work)}"
        if self._head is None:
            self._head = run
            self._reserve(run)
            run.note += "; it is the head of the queue and has a reservation"
        else:
            run.note += f" without delaying {self._head.key}, the head of the queue"

    def _preempt_for(self, run: Run, held: dict[str, Spots]) -> bool:
        if not self._preempt or self._head is not None:
            return False
        return preempt_for(self._work, run.priority, lambda: self._place_minimum(run, held))

    def _place_minimum(self, run: Run, held: dict[str, Spots]) -> bool:
        """Places every role group at its minimum, shrinking jobs where needed; False leaves nothing placed."""
        work = self._work
        mark = work.mark
        # The largest instances first: they have the fewest places to go.
        groups = sorted(run.job.groups, key=lambda g: (-work.inventory.share(run.requests[g.role]), g.role))
        for group in groups:
            request, mask = run.requests[group.role], run.masks[group.role]
            staying = self._closed_spots(run, group.role, held, most=group.minimum)
            work.place(run, group.role, staying)
            count = group.minimum - sum(staying.values())
            spots = self._pack(run, group.role, count, held.get(group.role, {}))
            if spots is not None:
                work.place(run, group.role, spots)
                continue
            for number in range(count):
                one = work.inventory.pack(request, mask, 1, prefer=sorted(held.get(group.role, {})))
                if one is None:
                    machine = make_room(
                        work, request, mask & ~self._closed, self._donors(run), wanted=count - number
                    )
                    if machine is None:
                        work.roll_back_to(mark)
                        return False
                    one = {machine: 1}
                work.place(run, group.role, one)
        return True

    def _closed_spots(self, run: Run, role: str, held: dict[str, Spots], *, most: int) -> Spots:
        """Instances on machines that take nothing new, such as cordoned ones: no other job can use their room."""
        inventory, mask = self._work.inventory, run.masks[role]
        staying: Spots = {}
        for machine, count in sorted(held.get(role, {}).items()):
            if inventory.is_kept[machine] and not mask[machine] and most > 0:
                staying[machine] = min(count, most)
                most -= staying[machine]
        return staying

    def _keep_closed(self, run: Run, held: dict[str, Spots]) -> None:
        """Keeps what an incomplete job holds on such machines above its minimum."""
        kept = run.spots[run.role]
        left = {
            machine: count - kept.get(machine, 0)
            for machine, count in held.get(run.role, {}).items()
            if count > kept.get(machine, 0)
        }
        room = self._work.quotas.room(run.job.namespace, run.request, run.maximum - run.size)
        if staying := self._closed_spots(run, run.role, {run.role: left}, most=room):
            self._work.place(run, run.role, staying)

    def _pack(self, run: Run, role: str, count: int, held: Spots) -> Spots | None:
        inventory = self._work.inventory
        request, mask = run.requests[role], run.masks[role]
        if role == run.role and run.whole_machines and run.per_machine > 0:
            # Workers that synchronise: on one machine, or on whole ones.
            machines, rest = divmod(count, run.per_machine)
            if machines and not rest:
                whole = inventory.pack_whole(request, mask, run.per_machine, machines, prefer=held)
                if whole is not None:
                    return whole
            elif not machines and count:
                room = inventory.fits(request, mask)
                fitting = np.flatnonzero(room >= count)
                if len(fitting):
                    in_place = [machine for machine in sorted(held) if room[machine] >= count]
                    best = in_place[0] if in_place else int(fitting[np.lexsort((fitting, room[fitting]))[0]])
                    return {best: count}
        return inventory.pack(request, mask, count, prefer=sorted(held))

    def _donors(self, claimant: Run) -> Donors:
        quotas = self._work.quotas
        entitled = quotas.is_within_guarantee(claimant.job.namespace, minimum_request(claimant))

        def may_release(run: Run) -> bool:
            if run is claimant:
                return False
            if run.priority <= claimant.priority:
                return True
            return entitled and quotas.is_borrowing(run.job.namespace, run.request)

        return may_release

    def _reserve(self, run: Run) -> None:
        """Withholds the free part of the machines on which the job will fit first."""
        work = self._work
        inventory = work.inventory
        future = inventory.free.copy()
        for other in work.runs.values():
            if other.priority <= run.priority:
                for role, spots in other.spots.items():
                    for machine, count in spots.items():
                        future[machine] += other.requests[role] * count
        for group in sorted(run.job.groups, key=lambda g: (-inventory.share(run.requests[g.role]), g.role)):
            request = run.requests[group.role]
            room = count_fits(future, request, run.masks[group.role])
            # The machines with the most room now wait for the fewest others.
            now = np.minimum(inventory.fits(request, run.masks[group.role]), room)
            left = group.minimum
            for machine in np.lexsort((np.arange(len(room)), -room, -now)).tolist():
                count = min(left, int(room[machine]))
                if count <= 0:
                    continue
                future[machine] -= request * count
                held_back = np.minimum(request * count, np.maximum(inventory.free[machine], 0))
                inventory.take(machine, held_back)
                self._withheld.append((machine, held_back))
                self._closed[machine] = True
                left -= count
                if left == 0:
                    break

    def close(self) -> None:
        for machine, amount in self._withheld:
            self._work.inventory.take(machine, -amount)


def _kind(run: Run) -> object:
    """Equal for jobs that need the same room at the same priority."""
    groups = [
        (group.minimum, run.requests[group.role].tobytes(), id(run.masks[group.role]))
        for group in run.job.groups
    ]
    return (run.priority, run.job.namespace, run.whole_machines, tuple(groups))


def minimum_request(run: Run) -> Ints:
    """Returns the request of a job at its minimum."""
    total = np.zeros_like(run.request)
    for group in run.job.groups:
        total = total + run.requests[group.role] * group.minimum
    return total


def _lacking_when_empty(work: Workspace, run: Run) -> str:
    """Returns which instances of the minimum would not fit on the machines if nothing else ran on them; empty if all
    would.
    """
    free = work.inventory.allocatable.copy()
    for group in sorted(run.job.groups, key=lambda g: (-work.inventory.share(run.requests[g.role]), g.role)):
        request = run.requests[group.role]
        room = count_fits(free, request, run.masks[group.role])
        left = group.minimum
        # The smallest machines that take any, so that large instances of other groups still fit.
        for machine in np.lexsort((np.arange(len(room)), room)).tolist():
            count = min(left, int(room[machine]))
            if count <= 0:
                continue
            free[machine] -= request * count
            left -= count
        if left:
            fitting = group.minimum - left
            without_limit = count_fits(free, work.inventory.without_pods(request), run.masks[group.role])
            is_limit = without_limit.sum() >= left
            why = ", as machines take no more pods" if is_limit else ""
            return f"{fitting} of {group.minimum} {group} would{why}"
    return ""


def _full_of_pods(work: Workspace) -> str:
    """Says how many machines have as many pods as they take: no job can use what is free there."""
    inventory = work.inventory
    if inventory.pods_column is None:
        return ""
    full = int(np.count_nonzero(inventory.is_open & (inventory.free[:, inventory.pods_column] < 1)))
    return f"; machines with as many pods as they take: {full}" if full else ""


def _note_shrunk(work: Workspace, cause: str) -> None:
    for run in work.take_shrunk():
        if run.was_running and run.size < run.observed_size and not run.note:
            run.note = f"makes room for {cause}"
