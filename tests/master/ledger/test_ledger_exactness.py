"""Whatever happens in whatever order, every sample is done exactly once an epoch.

A machine makes up histories: leases, reports (late, repeated, of lost leases), kills, failures, splits,
stops, checkpoints, rollbacks, and kills of the master, which comes back from what it has written. A naive
model that lists every sample by itself follows along; after each step the two must agree, and at the end the
work is finished and the audit must be exact.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections import Counter, deque
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.ledger.ledger import DatasetSpec, Ledger, LedgerError, LostLease, ShardGivesUp
from tests.random_histories import histories

WORKERS = st.sampled_from(["a", "b", "c"])
PART = st.floats(0, 1)


class Model:
    """One data set, sample by sample."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.epoch = 0
        self.steps = 0
        self.stopped = False
        self.done: set[int] = set()
        self.bad: set[tuple[int, int]] = set()
        self.again: Counter[int] = Counter()
        # Of each lease: its worker, and what it has still to do, in order.
        self.held: dict[int, tuple[str, list[int]]] = {}
        self.queue: deque[list[int]] = deque()

    def untouched(self) -> set[int]:
        out = {i for _, left in self.held.values() for i in left} | {i for left in self.queue for i in left}
        return set(range(self.size)) - self.done - out

    def give_back(self, leases: list[int]) -> None:
        back = [self.held.pop(lease)[1] for lease in sorted(leases)]
        self.queue.extendleft(reversed(back))

    def roll_back_to(self, then: Model) -> None:
        def done(model: Model) -> set[tuple[int, int]]:
            before = {(e, i) for e in range(model.epoch) for i in range(model.size)}
            return before | {(model.epoch, i) for i in model.done}

        self.again.update(epoch for epoch, _ in done(self) - done(then))
        self.epoch, self.done, self.steps = then.epoch, set(then.done), then.steps
        self.stopped = self.stopped and then.stopped
        self.held, self.queue = copy.deepcopy(then.held), copy.deepcopy(then.queue)
        self.give_back(list(self.held))


def holding(machine: Histories) -> bool:
    """To spend steps on histories in which something can happen."""
    return hasattr(machine, "model") and bool(machine.model.held)


class Histories(RuleBasedStateMachine):
    @initialize(
        size=st.integers(1, 60),
        shard_size=st.integers(1, 20),
        batch_size=st.integers(1, 7),
        epochs=st.integers(1, 3),
        shuffle=st.booleans(),
        gated=st.booleans(),
        seed=st.integers(0, 1000),
    )
    def begin(self, **given: Any) -> None:
        self.written: list[str] = []
        self.compacted = "null"
        self.ledger = Ledger()
        self.spec = DatasetSpec(name="d", max_shard_failures=1, **given)
        self.model = Model(self.spec.size)
        self.requests = {"a": 0, "b": 0, "c": 0}
        self.last_given: dict[str, list[int]] = {"a": [], "b": [], "c": []}
        self.highest_lease = 0
        self.checkpoint: tuple[dict[str, Any], Model] | None = None
        self.call("add", spec=self.spec.to_json())

    def teardown(self) -> None:
        if hasattr(self, "model"):
            self.finish()

    # -- the ledger, as a master uses it ---------------------------------------------------------------------

    @staticmethod
    def apply(ledger: Ledger, name: str, arguments: dict[str, Any]) -> Any:
        if name == "add":
            return ledger.add(DatasetSpec(**arguments["spec"]))
        return getattr(ledger, name)(**arguments)

    def call(self, name: str, **arguments: Any) -> Any:
        """Does it, and writes it down if anything has been done."""
        before = self.ledger.snapshot()
        try:
            result = self.apply(self.ledger, name, arguments)
        except LedgerError:
            assert self.ledger.snapshot() == before
            raise
        except ShardGivesUp:
            self.written.append(json.dumps([name, arguments]))
            raise
        if name == "lease" and not result:
            assert self.ledger.snapshot() == before
        else:
            self.written.append(json.dumps([name, arguments]))
        return result

    @rule()
    def kill_the_master(self) -> None:
        before = self.ledger.snapshot()
        snapshot = json.loads(self.compacted)
        self.ledger = Ledger.restore(snapshot) if snapshot is not None else Ledger()
        for name, arguments in map(json.loads, self.written):
            with contextlib.suppress(ShardGivesUp):
                self.apply(self.ledger, name, arguments)
        assert self.ledger.snapshot() == before

    @rule()
    def compact(self) -> None:
        self.compacted = json.dumps(self.ledger.snapshot())
        self.written.clear()

    # -- what happens ----------------------------------------------------------------------------------------

    @rule(worker=WORKERS, count=st.integers(1, 4))
    def lease(self, worker: str, count: int) -> None:
        leasable = self.ledger.leasable("d")
        self.requests[worker] += 1
        leases = self.call("lease", dataset="d", worker=worker, count=count, request_id=self.requests[worker])
        assert bool(leases) == leasable
        assert len(leases) <= count
        model = self.model
        if leases and leases[0].epoch > model.epoch:
            assert not self.spec.gated
            assert len(model.done) == model.size
            model.epoch += 1
            model.done = set()
        for lease in leases:
            assert lease.epoch == model.epoch
            assert lease.lease_id > self.highest_lease
            self.highest_lease = lease.lease_id
            samples = list(range(lease.start, lease.end))
            if model.queue:
                assert model.queue.popleft() == samples
            else:
                assert samples
                assert set(samples) <= model.untouched()
            model.held[lease.lease_id] = (worker, samples)
        if len(leases) < count and not model.stopped:
            assert not model.queue
            assert not model.untouched()
        if leases:
            self.last_given[worker] = [lease.lease_id for lease in leases]

    @rule(worker=WORKERS)
    def repeat_the_request(self, worker: str) -> None:
        still = [i for i in self.last_given[worker] if i in self.model.held]
        if still and self.ledger.answered("d", worker, self.requests[worker]):
            again = self.call("lease", dataset="d", worker=worker, count=1, request_id=self.requests[worker])
            assert [lease.lease_id for lease in again] == still

    @precondition(holding)
    @rule(pick=PART, part=PART, atomic=st.sampled_from([False, False, False, True]))
    def report(self, pick: float, part: float, atomic: bool) -> None:
        lease, worker, left = self.one_of_the_held(pick)
        state = next(held for held in self.ledger.held("d") if held.lease_id == lease)
        count = round(part * len(left))
        done = self.call(
            "progress",
            lease_id=lease,
            position=left[0] + count,
            batches=state.batches + 2,
            worker=worker,
            atomic=atomic,
        )
        self.model.steps += 2
        if done == 0:
            # It is atomic now, or was before; only its end would count.
            assert count < len(left)
            return
        assert done == count
        assert not self.model.done & set(left[:count])
        self.model.done |= set(left[:count])
        del left[:count]
        if not left:
            del self.model.held[lease]

    @precondition(holding)
    @rule(pick=PART)
    def report_late_and_again(self, pick: float) -> None:
        lease, worker, _left = self.one_of_the_held(pick)
        state = next(held for held in self.ledger.held("d") if held.lease_id == lease)
        for position in (state.position, state.start):
            done = self.call(
                "progress", lease_id=lease, position=position, batches=state.batches, worker=worker
            )
            assert done == 0

    @rule(lease=st.integers(0, 30), worker=WORKERS)
    def report_on_what_is_not_held(self, lease: int, worker: str) -> None:
        if self.model.held.get(lease, ("", []))[0] == worker:
            return
        for name, arguments in (("progress", {"position": 0, "batches": 1}), ("truncate", {"end": 0})):
            try:
                self.call(name, lease_id=lease, worker=worker, **arguments)
            except LostLease:
                continue
            raise AssertionError("A lease of another worker was reported on.")

    @rule(worker=WORKERS, fails=st.booleans())
    def kill_a_worker(self, worker: str, fails: bool) -> None:
        mine = sorted(i for i, (owner, _) in self.model.held.items() if owner == worker)
        try:
            returned = self.call(
                "release_worker", worker=worker, failed_lease=mine[0] if fails and mine else None
            )
        except ShardGivesUp:
            assert fails
        else:
            assert [list(range(r.start, r.end)) for r in returned] == [self.model.held[i][1] for i in mine]
        self.model.give_back(mine)

    @precondition(holding)
    @rule(pick=PART)
    def take_a_lease_away(self, pick: float) -> None:
        lease, _worker, _left = self.one_of_the_held(pick)
        self.call("release", lease_id=lease)
        self.model.give_back([lease])

    @rule(worker=WORKERS, ahead=PART, margin=st.integers(0, 2))
    def split(self, worker: str, ahead: float, margin: int) -> None:
        before = self.ledger.snapshot()
        proposal = self.ledger.split("d", worker, margin)
        assert self.ledger.snapshot() == before
        if proposal is None:
            return
        assert not self.ledger.leasable("d")
        owner, left = self.model.held[proposal.lease_id]
        assert owner == proposal.worker != worker
        assert proposal.new_end < left[-1] + 1
        # The owner has come further than it has said, and gives up what is beyond that.
        reached = left[0] + round(ahead * ahead * len(left))
        self.truncate(proposal.lease_id, max(proposal.new_end, reached))

    @precondition(holding)
    @rule(pick=PART, part=PART)
    def give_up_a_part(self, pick: float, part: float) -> None:
        lease, _worker, left = self.one_of_the_held(pick)
        self.truncate(lease, left[0] + round(part * len(left)))

    def truncate(self, lease: int, end: int) -> None:
        worker, left = self.model.held[lease]
        returned = self.call("truncate", lease_id=lease, worker=worker, end=end)
        given = [i for i in left if i >= end]
        assert (returned is None) == (not given)
        if given:
            self.model.queue.appendleft(given)
            del left[len(left) - len(given) :]
            if not left:
                del self.model.held[lease]

    @precondition(holding)
    @rule(pick=PART, part=PART)
    def meet_bad_data(self, pick: float, part: float) -> None:
        _lease, _worker, left = self.one_of_the_held(pick)
        end = left[0] + max(1, round(part * len(left)))
        self.call("mark_bad", dataset="d", start=left[0], end=end, where="file", reason="checksum")
        self.model.bad |= {(self.model.epoch, i) for i in range(left[0], end)}

    @precondition(lambda self: hasattr(self, "model") and self.model.steps)
    @rule()
    def save(self) -> None:
        self.checkpoint = json.loads(json.dumps(self.ledger.snapshot())), copy.deepcopy(self.model)

    @precondition(lambda self: hasattr(self, "model") and self.model.steps)
    @rule(lose_all=st.sampled_from([False, False, False, True]))
    def lose_the_model(self, lose_all: bool) -> None:
        if self.checkpoint is None and not lose_all:
            return
        snapshot, then = None, Model(self.spec.size)
        if self.checkpoint is not None and not lose_all:
            snapshot, then = self.checkpoint
        self.call("rollback", snapshot=snapshot)
        self.model.roll_back_to(then)
        if lose_all:
            # It belongs to a history that has not happened now.
            self.checkpoint = None

    @precondition(lambda self: hasattr(self, "spec") and self.spec.gated)
    @rule()
    def open_the_next_epoch(self) -> None:
        model = self.model
        may = len(model.done) == model.size and model.epoch + 1 < self.spec.epochs and not model.stopped
        try:
            self.call("open_next_epoch", dataset="d")
        except LedgerError:
            assert not may
        else:
            assert may
            model.epoch += 1
            model.done = set()

    @rule(dice=st.integers(0, 9))
    def stop(self, dice: int) -> None:
        if dice == 5:
            self.call("stop", dataset="d")
            self.model.stopped = True

    def one_of_the_held(self, pick: float) -> tuple[int, str, list[int]]:
        leases = sorted(self.model.held)
        lease = leases[min(len(leases) - 1, int(pick * len(leases)))]
        return lease, *self.model.held[lease]

    # -- what must hold --------------------------------------------------------------------------------------

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        ledger, model = self.ledger, self.model
        assert ledger.check() == []
        assert ledger.epoch("d") == model.epoch
        assert ledger.steps == model.steps
        assert ledger.done("d", model.epoch) == len(model.done)
        assert ledger.samples_done("d") == model.epoch * model.size + len(model.done)
        assert {
            held.lease_id: (held.worker, list(range(held.position, held.end))) for held in ledger.held("d")
        } == model.held
        for worker in self.requests:
            mine = [lease for lease, (owner, _) in sorted(model.held.items()) if owner == worker]
            assert [held.lease_id for held in ledger.held_by(worker)] == mine
        assert ledger.epoch_done("d") == (len(model.done) == model.size)
        over = len(model.done) == model.size and model.epoch == self.spec.epochs - 1
        assert ledger.finished("d") == (over or (model.stopped and not model.held))
        for epoch in range(self.spec.epochs):
            assert ledger.again("d", epoch) == model.again[epoch]
            passed = model.done if epoch == model.epoch else range(model.size) if epoch < model.epoch else ()
            assert ledger.skipped("d", epoch) == sum((epoch, i) in model.bad for i in passed)
        assert Ledger.restore(json.loads(json.dumps(ledger.snapshot()))).snapshot() == ledger.snapshot()

    def finish(self) -> None:
        """Works off what is left, with a worker that lives."""
        for worker in self.requests:
            self.kill_a_worker(worker, fails=False)
        while not self.ledger.finished("d"):
            if self.spec.gated and self.ledger.epoch_done("d"):
                self.open_the_next_epoch()
            self.lease("a", 4)
            assert self.model.held
            for lease, (worker, left) in list(self.model.held.items()):
                self.call("progress", lease_id=lease, position=left[-1] + 1, batches=1, worker=worker)
                self.model.steps += 1
                self.model.done |= set(left)
                del self.model.held[lease]
            self.they_agree()
        audit = audit_ledger(self.ledger)
        assert audit.exact, audit.reason
        for row in audit.rows:
            assert row.done + row.skipped + row.left == self.spec.size
            assert row.left == 0 or self.model.stopped
        assert len(audit.rows) == self.spec.epochs or self.model.stopped
        assert sum(row.again for row in audit.rows) == sum(self.model.again.values())
        self.kill_the_master()


Histories.TestCase.settings = histories(50, steps=60)
TestHistories = pytest.mark.soak(Histories.TestCase)
