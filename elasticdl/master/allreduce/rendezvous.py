"""Rendezvous: the rounds of a job whose workers exchange gradients among themselves.

A plain state machine without clock or I/O. Its input are ready workers; its output are rounds: a number that only
grows, and the members in the order of their ranks. A round is over as soon as a member dies, leaves or joins; the
others join the next one, with their state. No process is restarted for it.

The oldest come first
    A member's age is the first round in which it had the state of the training, which it reports itself; so the order
    outlives the master. The first member sends the state to new ones, and saves it.

Failure modes
    A member dies: the platform reports it, and the next round is without it at once. A connection breaks without a
    death: a member reports that the round is broken. Most often a death is about to be reported, so the same members
    form a round again only after a moment (`PATIENCE`) without one. A member hangs: the others report that they wait,
    and it does not.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace

# How long the news of a death may be on its way when its connections have been closed already.
PATIENCE = 0.5
# How long a restarted master waits for the members of the last round, before the next one begins without the missing
# ones.
RETURN_SECONDS = 3.0
# A waiting member repeats its report within this time; one that has not is not waiting.
WAITING_NEWS = 12.0


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A worker that wants to take part."""

    worker: str
    incarnation: str
    address: str
    # The first round in which it had the state of the training; 0 before that.
    since: int = 0
    # The how many-th it was to say that it is ready.
    arrival: int = 0

    @property
    def age(self) -> tuple[int, int, int]:
        return (0, self.since, self.arrival) if self.since else (1, 0, self.arrival)

    @property
    def identity(self) -> tuple[str, str, str]:
        return self.worker, self.incarnation, self.address


@dataclass(frozen=True, kw_only=True)
class Round:
    number: int
    members: tuple[Ready, ...] = ()

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(member.worker for member in self.members)


@dataclass(frozen=True, kw_only=True)
class _Wait:
    reported_at: float
    seconds: float


@dataclass(kw_only=True)
class Rendezvous:
    # No more than so many take part: the micro-batches of a step. The others stand by.
    capacity: int
    round: Round = field(default_factory=lambda: Round(number=0))
    _ready: dict[str, Ready] = field(default_factory=dict)
    _arrivals: int = 0
    _broken_at: float | None = None
    # The workers that a restarted master waits for, and until when.
    _missing: set[str] = field(default_factory=set)
    _missed_at: float = 0.0
    _waits: dict[str, _Wait] = field(default_factory=dict)

    # -- events ----------------------------------------------------------------------------------------------

    def resume(self, workers: Collection[str], now: float) -> None:
        """The master was restarted while these trained. They still do; all are asked to meet again at once."""
        self._missing = set(workers)
        self._missed_at = now + RETURN_SECONDS

    def ready(self, *, worker: str, incarnation: str, address: str, since: int, known_round: int) -> None:
        """A worker says that it is ready, for the first time or after it lost its line to the master."""
        # A master that was restarted knows no rounds; its workers do.
        if known_round > self.round.number:
            self.round = Round(number=known_round)
        before = self._ready.get(worker)
        if before is None or before.incarnation != incarnation:
            self._arrivals += 1
            arrival = self._arrivals
        else:
            arrival = before.arrival
        self._ready[worker] = Ready(
            worker=worker, incarnation=incarnation, address=address, since=since, arrival=arrival
        )
        self._missing.discard(worker)
        self._settle()

    def synced(self, worker: str, number: int) -> None:
        """The worker has had the state of the training since that round, or longer."""
        member = self._ready.get(worker)
        if member is not None and not member.since:
            self._ready[worker] = replace(member, since=number)

    def leave(self, worker: str, incarnation: str) -> None:
        member = self._ready.get(worker)
        if member is not None and member.incarnation == incarnation:
            del self._ready[worker]
            self._settle()

    def keep(self, alive: Collection[str]) -> None:
        """Removes all workers that are not among these."""
        gone = [worker for worker in self._ready if worker not in alive]
        for worker in gone:
            del self._ready[worker]
        dead = self._missing.difference(alive)
        self._missing -= dead
        if gone or dead:
            self._settle()

    def clear(self) -> None:
        """The state of the training is lost: all come again, as newcomers."""
        self._ready.clear()
        self._settle()

    def broken(self, worker: str, number: int, now: float) -> None:
        if number == self.round.number and worker in self.round.workers and self._broken_at is None:
            self._broken_at = now

    def tick(self, now: float) -> None:
        """Time has passed."""
        # Without a member that has the state, a round makes no sense.
        if self._missing and now >= self._missed_at and any(m.since for m in self._ready.values()):
            self._missing.clear()
            self._settle()
        if self._broken_at is not None and now >= self._broken_at + PATIENCE:
            self._next_round(self._members())

    def waiting(self, worker: str, number: int, seconds: float, now: float) -> None:
        if number == self.round.number:
            self._waits[worker] = _Wait(reported_at=now, seconds=seconds)

    # -- what follows ----------------------------------------------------------------------------------------

    @property
    def incomplete(self) -> bool:
        """Whether some members are still missing."""
        return bool(self._missing)

    def older_than(self, worker: str) -> list[str]:
        """The members of the round before this one; all of them if it is no member."""
        workers = list(self.round.workers)
        return workers[: workers.index(worker)] if worker in workers else workers

    def hanging(self, limit: float, now: float) -> list[str]:
        """Members that others have been waiting for longer than `limit`."""
        waits = {
            worker: wait for worker, wait in self._waits.items() if now - wait.reported_at < WAITING_NEWS
        }
        if not any(wait.seconds > limit for wait in waits.values()):
            return []
        return [worker for worker in self.round.workers if worker not in waits]

    def _members(self) -> tuple[Ready, ...]:
        return tuple(sorted(self._ready.values(), key=lambda member: member.age)[: self.capacity])

    def _settle(self) -> None:
        if self._missing:
            return
        members = self._members()
        if {m.identity for m in members} != {m.identity for m in self.round.members}:
            self._next_round(members)

    def _next_round(self, members: tuple[Ready, ...]) -> None:
        self.round = Round(number=self.round.number + 1, members=members)
        self._broken_at = None
        self._waits.clear()
