"""Who is at work and who only seems to be: decided by what was heard of a worker, and when.

Not part of the state that is written down: a master that comes back begins to listen anew, and nobody loses anything
by being given a little more time.

Failure modes
    A worker that holds a shard and has not moved for much longer than a batch takes is *stalled*. One that follows no
    directives any more is *astray*: without a shard, too, others may wait for it, as the end of an epoch does for the
    leader. If all are, it may be the master that cannot be reached. A node of ours that has not joined long after its
    start, whatever its role, is *late*: it hangs before it could say a word. A program that has not said a word long
    after its start, while others have, is *silent*: it hangs before its first call. Whoever waits for something else (a
    cut, a parameter server that comes back) is none of these. One that has told of its own error and does not end is
    *lingering*: until it has ended, nobody gets what it holds. The master itself stands still for a while: nodes may
    have wanted to join meanwhile, and are waited for anew.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from elasticdl.master.job_state import JobState
from elasticdl.master.programs.program_completion import TRAINERS
from elasticdl.platforms.platform import NodePhase

# TensorFlow waits half a minute before it looks whether a lost parameter server is back.
_RECOVERY_FACTOR = 3.0
# A worker that has told of its error has nothing more to do; a cluster may take some seconds to tell of its end.
_LAST_SECONDS = 30.0
# Who looks every second, and has not for so long, has heard nobody meanwhile.
STOOD_STILL_SECONDS = 10.0
# So much longer workers are waited for if none is left that can be reached.
_NOBODY_FACTOR = 4.0


class Liveness:
    def __init__(self, state: JobState, clock: Callable[[], float]) -> None:
        self._state = state
        self._clock = clock
        self._started_at: dict[str, float] = {}
        self._looked_at = clock()
        # How many calls for directives each node has open; which had one ever; and since when others have none.
        self._follows: Counter[str] = Counter()
        self._followed: set[str] = set()
        self._cut_off_at: dict[str, float] = {}
        self._progress_at: dict[str, float] = {}
        self._batch_seconds: dict[str, float] = {}
        self._heard: set[str] = set()
        self._moved: set[str] = set()
        self._first_heard_at = float("inf")
        self._failed_at: dict[str, float] = {}
        self._ended: set[str] = set()

    # -- what is heard ---------------------------------------------------------------------------------------

    def started(self, node: str) -> None:
        self._started_at[node] = self._clock()

    def heard(self, worker: str) -> None:
        """A program has said something."""
        self._heard.add(worker)
        self._first_heard_at = min(self._first_heard_at, self._clock())

    @contextmanager
    def following(self, node: str) -> Iterator[None]:
        """As long as a node's call for directives is open. gRPC ends that of one that does not answer its pings."""
        self._follows[node] += 1
        self._followed.add(node)
        self._cut_off_at.pop(node, None)
        try:
            yield
        finally:
            self._follows[node] -= 1
            if not self._follows[node]:
                del self._follows[node]
                if node not in self._ended:
                    self._cut_off_at[node] = self._clock()

    def leased(self, worker: str) -> None:
        """Whoever gets work now has until now had a reason to stand still."""
        self._progress_at[worker] = self._clock()

    def moved(self, worker: str, *, batch_seconds: float = 0.0, batches: int = 0) -> None:
        """A worker has come further. Who does not tell how long a batch takes is measured by its reports."""
        self._moved.add(worker)
        now = self._clock()
        before = self._progress_at.get(worker)
        if batches and before is not None:
            batch_seconds = (now - before) / batches
        if batch_seconds > 0:
            self._batch_seconds[worker] = batch_seconds
        self._progress_at[worker] = now

    def excuse(self, worker: str | None = None) -> None:
        """Its time begins anew; everybody's if nobody is named: they waited for something else."""
        if worker is None:
            self._progress_at.clear()
        else:
            for since in (self._progress_at, self._failed_at, self._cut_off_at):
                since.pop(worker, None)

    def ended(self, worker: str) -> None:
        """The platform says so. What it is credited with may take a while to find out."""
        self._ended.add(worker)
        self._followed.discard(worker)
        for since in (self._started_at, self._cut_off_at):
            since.pop(worker, None)

    # -- what follows from it --------------------------------------------------------------------------------

    def look(self, now: float) -> None:
        """Somebody does, every second."""
        if now - self._looked_at > STOOD_STILL_SECONDS and not self._state.plan.runs_command:
            self._started_at.clear()
            self._cut_off_at.clear()
        self._looked_at = now

    def stalled(self, now: float) -> list[str]:
        """Workers that hold a shard and have not moved for much longer than a batch takes."""
        state = self._state
        if not state.plan.stall_factor or not self._batch_seconds:
            return []
        # Whoever has come to a halt for a cut waits for those who have not.
        waiting = state.cut.reached if state.cut is not None else []
        limit = self._longest_batch()
        return [
            worker
            for worker in self._trainers()
            if worker not in waiting
            and state.ledger.leases.count(worker)
            and now - self._progress_at.setdefault(worker, now) > limit
        ]

    def silent(self, now: float) -> list[str]:
        """Workers whose program has never asked for data, long after its start, while others have."""
        limit = self._state.plan.start_timeout_seconds
        # Where all need long to get ready, those who are not the first may need a little longer.
        if not limit or not self._state.data.announced or now - self._first_heard_at <= limit:
            return []
        return [
            worker
            for worker in self._trainers()
            if worker not in self._heard
            and self._state.roster.nodes[worker].phase is not NodePhase.PENDING
            and now - self._started_at.setdefault(worker, now) > limit
        ]

    def unjoined(self, now: float) -> dict[str, float]:
        """Nodes of ours that run and have not joined, and for how many seconds. A program joins nobody."""
        state = self._state
        if state.plan.runs_command:
            return {}
        nodes = [
            node.name
            for role in state.roster.targets
            for node in state.roster.alive(role)
            if node.phase is NodePhase.RUNNING and not node.incarnation and not node.goes
        ]
        return {name: now - self._started_at.setdefault(name, now) for name in nodes}

    def cut_off(self, now: float) -> dict[str, float]:
        """Workers of ours that have joined and follow no directives, and for how many seconds: they are stopped, or
        cannot be reached. Their processes may hold no shard and have to do something all the same.
        """
        state = self._state
        if state.plan.runs_command:
            return {}
        workers = [
            node.name
            for node in state.roster.alive("worker")
            if node.incarnation and not node.vacated and not self._follows[node.name]
        ]
        return {name: now - self._cut_off_at.setdefault(name, now) for name in workers}

    def astray(self, now: float) -> list[str]:
        """Workers that have been cut off for too long."""
        plan = self._state.plan
        if not plan.stall_factor:
            return []
        cut_off = self.cut_off(now)
        limit = self._longest_batch() * (1.0 if self._follows else _NOBODY_FACTOR)
        # Who has followed no directives yet is only beginning, or knows the master of before.
        first = plan.start_timeout_seconds or math.inf
        return [
            name
            for name, seconds in cut_off.items()
            if seconds > (limit if name in self._followed else max(limit, first))
        ]

    def _longest_batch(self) -> float:
        """Who needs longer than so many seconds hangs."""
        plan = self._state.plan
        floor = plan.stall_floor_seconds * (_RECOVERY_FACTOR if plan.runs_command else 1.0)
        usual = statistics.median(self._batch_seconds.values()) if self._batch_seconds else 0.0
        return max(floor, plan.stall_factor * usual)

    def late(self, now: float) -> list[str]:
        """Nodes of ours that have not joined long after their start."""
        limit = self._state.plan.start_timeout_seconds
        return [name for name, seconds in self.unjoined(now).items() if limit and seconds > limit]

    def lingering(self, now: float) -> list[str]:
        """Workers that have failed some time ago and are still there."""
        failed = self._state.failed.keys() - self._ended
        self._failed_at = {worker: self._failed_at.get(worker, now) for worker in failed}
        return [worker for worker, at in self._failed_at.items() if now - at > _LAST_SECONDS]

    def has_moved(self, worker: str) -> bool:
        """It has come further at least once."""
        return worker in self._moved

    def unheard_of(self, worker: str, seconds: float) -> bool:
        """Nothing has come of this worker for so long."""
        return self._clock() - self._progress_at.get(worker, float("-inf")) > seconds

    def _trainers(self) -> list[str]:
        return [node.name for role in TRAINERS for node in self._state.roster.alive(role)]
