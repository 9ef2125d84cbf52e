"""Jobs of fixed size: first come, first served with gangs, and the plain scheduler of the cluster.

`fifo` starts the oldest job when all of its instances fit, and holds everyone behind it until then.
`static` creates all pods when a job is submitted and leaves them to the cluster's scheduler: what a cluster
without any job scheduler does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from elasticdl.scheduling.cluster import Machine
from elasticdl.simulator.policy import ClusterView, PolicyPlan
from elasticdl.simulator.work import BatchChooser
from elasticdl.simulator.workload import WorkloadJob


class FifoPolicy:
    @property
    def name(self) -> str:
        return "fifo"

    @property
    def interval_seconds(self) -> float | None:
        return None

    @property
    def stop_seconds(self) -> float | None:
        return None

    @property
    def chooser(self) -> BatchChooser | None:
        return None

    def sizes(self, job: WorkloadJob) -> tuple[int, int]:
        return job.requested, job.requested

    def plan(self, view: ClusterView) -> PolicyPlan:
        free = [
            {key: total - used.get(key, 0) for key, total in machine.allocatable.items()}
            for machine, used in zip(view.machines, view.used, strict=True)
        ]
        placements: dict[str, dict[str, dict[int, int]]] = {}
        waiting = [job for job in view.jobs.values() if not job.pods]
        for job in sorted(
            waiting, key=lambda one: (-one.job.priority, one.job.submitted_at_seconds, one.job.name)
        ):
            placement = place_gang(job.job, job.job.requested, view.machines, free)
            if placement is None:
                break
            placements[job.job.name] = placement
        return PolicyPlan(placements=placements)


class StaticPolicy:
    @property
    def name(self) -> str:
        return "static"

    @property
    def interval_seconds(self) -> float | None:
        return None

    @property
    def stop_seconds(self) -> float | None:
        return None

    @property
    def chooser(self) -> BatchChooser | None:
        return None

    def sizes(self, job: WorkloadJob) -> tuple[int, int]:
        # Without synchronisation a job trains with as few instances as it gets.
        return (job.requested if job.work.needs_all else job.elastic.minimum), job.requested

    def plan(self, view: ClusterView) -> PolicyPlan:
        counts = {
            name: {
                group.role: job.job.requested if group is job.job.elastic else group.minimum
                for group in job.job.groups
            }
            for name, job in view.jobs.items()
            if not job.pods
        }
        return PolicyPlan(counts=counts)


def place_gang(
    job: WorkloadJob, size: int, machines: Sequence[Machine], free: list[dict[str, int]]
) -> dict[str, dict[int, int]] | None:
    """Places all groups of a job, fullest machines first, and takes the room from `free`; None, and nothing
    taken, if they do not fit.
    """
    before = [dict(room) for room in free]
    placement: dict[str, dict[int, int]] = {}
    for group in sorted(job.groups, key=lambda one: -_largest_share(one.requests, machines)):
        missing = size if group is job.elastic else group.minimum
        placement[group.role] = {}
        need = {key: value for key, value in group.requests.items() if value > 0}

        def room_for(number: int, need: Mapping[str, int] = need) -> int:
            return min((free[number].get(key, 0) // value for key, value in need.items()), default=10**6)

        # As few machines as possible: those with most room first, but a machine that just holds the rest
        # before an emptier one.
        while missing > 0:
            rooms = {number: room_for(number) for number in range(len(machines))}
            enough = [number for number, room in rooms.items() if room >= missing]
            best = min(enough, key=lambda n: rooms[n]) if enough else max(rooms, key=lambda n: rooms[n])
            count = min(rooms[best], missing)
            if count <= 0:
                free[:] = before
                return None
            placement[group.role][best] = placement[group.role].get(best, 0) + count
            for key, value in need.items():
                free[best][key] -= value * count
            missing -= count
    return placement


def _largest_share(requests: Mapping[str, int], machines: Sequence[Machine]) -> float:
    return max(
        (
            value / max(machine.allocatable.get(key, 0), 1)
            for key, value in requests.items()
            for machine in machines[:1]
        ),
        default=0.0,
    )
