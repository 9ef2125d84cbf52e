"""The state of a recovery: what workers have reclaimed since the master lost its journal.

The master restored a snapshot that is some seconds old. Since then workers have done samples, got shards, finished
epochs; the snapshot lacks all of it, and the workers know it. Each reports when it finds a master of another *lineage*:
the shards of about the last minute with how far it got, those it holds, and the newest directive it had. While these
reports are collected no shard is leased, no checkpoint is taken and no node is replaced; workers go on with their
leases.

What is reported done is done. A reported lease is renewed. What was leased and no worker reports is requeued, and the
audit lists it as trained again. Numbers (of leases, of barriers) continue far above those of the snapshot, so that none
is used twice.

Failure modes
    A worker that died with the master reports nothing: what it did since the snapshot is trained again. A worker that
    reports too late loses its leases. If the model was lost between the snapshot and the end of the previous master, a
    worker reports a higher generation, and the job rolls back to its last checkpoint.
"""

from __future__ import annotations

import enum
from typing import Any, Protocol

from elasticdl.master.checkpointing.checkpoint_cycle import CheckpointCycle
from elasticdl.master.checkpointing.rollback import Rollback
from elasticdl.master.commands.recovery import (
    AdoptNode,
    FinishReclaim,
    RaiseGeneration,
    ReclaimShards,
    ReportedShard,
    SkipNodeNumber,
    StartReclaim,
)
from elasticdl.master.commands.shards import AnnounceDataset
from elasticdl.master.dataset_names import EVALUATION, TRAINING
from elasticdl.master.ledger.ledger import Lease, Ledger, LedgerError
from elasticdl.master.lifecycle.dataset_sizes import DatasetSizes
from elasticdl.master.lifecycle.dispatcher import Dispatcher
from elasticdl.master.lifecycle.epochs import Epochs
from elasticdl.master.lifecycle.evaluations import Evaluations
from elasticdl.master.lifecycle.roster import Node, Roster
from elasticdl.master.recovery import ledger_reclaim
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import NodePhase

# More than can be leased between two snapshots; few enough for 32 bits after a thousand restarts.
_LEASES_SKIPPED = 1_000_000
_BARRIERS_SKIPPED = 1_000


class ReclaimPhase(enum.Enum):
    """NOT_NEEDED → COLLECTING → DONE, and COLLECTING again if the journal is lost once more."""

    # The journal of this job has never been lost.
    NOT_NEEDED = "not needed"
    # Workers report what they hold and have done.
    COLLECTING = "collecting"
    # The reports are in the ledger; the job goes on.
    DONE = "done"


class Announcements(Protocol):
    def announce(self, command: AnnounceDataset) -> None: ...


class ReclaimedState(Protocol):
    """The part of the job's state that a recovery changes."""

    @property
    def plan(self) -> JobSettings: ...

    @property
    def ledger(self) -> Ledger: ...

    @property
    def roster(self) -> Roster: ...

    @property
    def dataset_sizes(self) -> DatasetSizes: ...

    @property
    def epochs(self) -> Epochs: ...

    @property
    def evaluations(self) -> Evaluations: ...

    @property
    def work(self) -> Dispatcher: ...

    @property
    def cycle(self) -> CheckpointCycle: ...

    @property
    def generation(self) -> int: ...

    @property
    def rollback(self) -> Rollback: ...

    @property
    def schedule(self) -> Announcements: ...


class Reclaim:
    """Part of the job's state: changed by commands only, which the journal replays."""

    def __init__(self, state: ReclaimedState) -> None:
        self._state = state
        # The same for masters that continue one journal; a new one begins when the journal is lost.
        self.lineage = ""
        self.phase = ReclaimPhase.NOT_NEEDED
        # The workers that have reported.
        self.reported: list[str] = []
        # The workers whose reports are needed to know all that was done.
        self._expected: list[str] = []
        # Even they may not know all of it.
        self._is_incomplete = False
        # From the snapshot: the batches of each lease, and the next lease number.
        self._snapshot_batches: dict[int, int] = {}
        self._snapshot_next_lease = 0
        # What was leased and may have been done, (epoch, start, end) by data set: counted as trained again if it is
        # still queued in the end.
        self._unclaimed: dict[str, list[tuple[int, int, int]]] = {}

    # -- commands --------------------------------------------------------------------------------------------

    def start(self, command: StartReclaim) -> None:
        """Starts collecting, after an old snapshot was restored. `saved`: the checkpoint to roll back to if need be."""
        state = self._state
        self.lineage = command.lineage
        self.phase = ReclaimPhase.COLLECTING
        self.reported = []
        self._expected = [node.name for node in state.roster.alive("worker") if node.incarnation]
        self._is_incomplete = self._is_incomplete or command.is_incomplete
        state.cycle.set_saved(command.saved)
        self._restart_checkpoint_cycle()
        state.work.withdraw_proposals()
        if not self._snapshot_next_lease:
            self._snapshot_next_lease = state.ledger.next_lease
        for lease_id, lease in ledger_reclaim.reopen(state.ledger, _LEASES_SKIPPED).items():
            self._snapshot_batches[lease_id] = lease.batches
            self._add_unclaimed(lease.dataset, [(lease.epoch, lease.position, lease.end)])

    def _restart_checkpoint_cycle(self) -> None:
        """A barrier, a checkpoint or an evaluation under way may be over by now: it is repeated."""
        state = self._state
        under_way = state.cycle.pending is not None or state.evaluations.current is not None
        reopened = state.ledger.epoch(TRAINING) if under_way and TRAINING in state.dataset_sizes else None
        state.evaluations.cancel_and_repeat()
        state.cycle.restart(skipped_numbers=_BARRIERS_SKIPPED, reopened_epoch=reopened)

    def adopt(self, command: AdoptNode) -> None:
        """Adds a worker that was started after the snapshot. `place`: the one that it took, if that is known."""
        roster, node, place = self._state.roster, command.node, command.place
        role, _, number = node.rpartition("-")
        if node in roster.nodes:
            return
        roster.next_number[role] = max(roster.next_number.get(role, 0), int(number) + 1)
        if place is not None and place < roster.targets[role]:
            # Its former holder is gone, or on its way out, and will be found to be.
            slot = place
        else:
            # It may be one slot more than there are places, until the node that it replaces turns out to be gone.
            used = {n.slot for n in roster.alive(role)}
            slot = next(slot for slot in range(len(used) + 1) if slot not in used)
        roster.nodes[node] = Node(
            name=node, role=role, number=int(number), slot=slot, phase=NodePhase.RUNNING
        )
        if roster.run_to_their_end:
            roster.nodes[node].incarnation = "process"

    def skip_number(self, command: SkipNodeNumber) -> None:
        """Raises the next node number above this one, which was started after the snapshot."""
        roster, role, number = self._state.roster, command.role, command.number
        if role == "worker":
            self._expected.append(f"{role}-{number}")
        roster.next_number[role] = max(roster.next_number.get(role, 0), number + 1)

    def raise_generation(self, command: RaiseGeneration) -> None:
        """Rolls back to the checkpoint: the model was lost after the snapshot."""
        self._state.rollback.run(above=command.above)

    def take_report(self, command: ReclaimShards) -> list[int]:
        """Returns the leases that the worker must drop."""
        state, worker, reports = self._state, command.worker, command.shards
        held = [shard.lease_id for shard in reports if shard.held]
        node = state.roster.nodes.get(worker)
        if not self.is_collecting or worker in self.reported or node is None or not node.alive:
            mine = {lease.lease_id for lease in state.ledger.held_by(worker)}
            return [lease_id for lease_id in held if lease_id not in mine]
        self._announce(command.sizes)
        self.reported.append(worker)
        state.cycle.skip_numbers(command.barrier + _BARRIERS_SKIPPED)
        # Higher than those of the snapshot by more than is skipped, if a master before this one began with it too.
        ledger_reclaim.skip_number(state.ledger, max((shard.lease_id for shard in reports), default=0))
        if command.seen_generation > state.generation:
            state.rollback.run(above=command.seen_generation)
        if command.generation != state.generation:
            return held
        self._complete_epochs(command.epochs_ended)
        lost = []
        # The newest first: they show which epochs are over.
        for shard in sorted(reports, key=lambda shard: -shard.lease_id):
            if not self._reclaim(worker, shard):
                lost.append(shard.lease_id)
        return lost

    def finish(self, command: FinishReclaim) -> None:
        """Ends collecting. What no worker reported is trained again; if all have reported, it had not been done."""
        if not self.is_collecting:
            return
        self.phase = ReclaimPhase.DONE
        incomplete = self._is_incomplete or any(worker not in self.reported for worker in self._expected)
        for dataset, ranges in self._unclaimed.items():
            if incomplete and dataset in self._state.ledger.datasets():
                # The parameter servers may have had it, and are as they were.
                may_count_twice = bool(self._state.plan.servers) and dataset == TRAINING
                ledger_reclaim.count_unclaimed(
                    self._state.ledger, dataset, ranges, may_count_twice=may_count_twice
                )
        self.lose_model()
        self.reported, self._expected, self._snapshot_next_lease = [], [], 0
        self._is_incomplete = False
        state = self._state
        if (
            state.plan.kind == "evaluate"
            and EVALUATION in state.dataset_sizes
            and not state.evaluations.results
        ):
            state.evaluations.begin(number=state.cycle.passed + 1, epoch=-1)

    def lose_model(self) -> None:
        """Drops what is unclaimed: the ledger was rolled back to a checkpoint, which counts all of it as
        trained again.
        """
        self._unclaimed.clear()
        self._snapshot_batches.clear()

    # -- reports ---------------------------------------------------------------------------------------------

    def _announce(self, sizes: dict[str, int]) -> None:
        for dataset, size in sizes.items():
            if self._state.plan.kind != "evaluate":
                self._state.schedule.announce(AnnounceDataset(dataset=dataset, size=size))
            else:
                # Its evaluation begins when all reports are in.
                if dataset not in self._state.dataset_sizes:
                    self._state.dataset_sizes.announce(dataset, size)

    def _complete_epochs(self, ended: list[dict[str, Any]]) -> None:
        """Completes epochs whose end callbacks have seen."""
        state = self._state
        known = state.epochs.ended[-1]["epoch"] if state.epochs.ended else -1
        newer = [epoch for epoch in ended if epoch["epoch"] > known]
        if not newer or TRAINING not in state.dataset_sizes:
            return
        state.epochs.learn(newer)
        last = newer[-1]["epoch"]
        if last >= state.ledger.epoch(TRAINING):
            ledger_reclaim.complete_epoch(state.ledger, TRAINING, last)
        state.cycle.learn_closed_epoch(last)

    def _reclaim(self, worker: str, shard: ReportedShard) -> bool:
        """False if the worker must drop it."""
        ledger = self._state.ledger
        news = shard.lease_id in self._snapshot_batches or shard.lease_id >= self._snapshot_next_lease
        if not news or shard.dataset not in ledger.datasets():
            # Its end is in the snapshot.
            return not shard.held
        try:
            if shard.position > shard.start:
                done, leased = ledger_reclaim.claim_done(
                    ledger, shard.dataset, epoch=shard.epoch, start=shard.start, end=shard.position
                )
                self._add_unclaimed(shard.dataset, leased)
                if done:
                    ledger.steps += max(0, shard.batches - self._snapshot_batches.get(shard.lease_id, 0))
            if not shard.held or shard.position >= shard.end:
                return True
            kept, leased = ledger_reclaim.claim_lease(
                ledger,
                Lease(
                    lease_id=shard.lease_id,
                    dataset=shard.dataset,
                    worker=worker,
                    epoch=shard.epoch,
                    start=shard.start,
                    end=shard.end,
                    failures=0,
                    position=shard.position,
                    batches=shard.batches,
                    applied=shard.applied,
                ),
                atomic=shard.atomic,
            )
            self._add_unclaimed(shard.dataset, leased)
        except LedgerError:
            # A shard of another data set with the same name.
            return not shard.held
        return kept

    def _add_unclaimed(self, dataset: str, leased: list[tuple[int, int, int]]) -> None:
        self._unclaimed.setdefault(dataset, []).extend(leased)

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def is_collecting(self) -> bool:
        return self.phase is ReclaimPhase.COLLECTING

    @property
    def is_complete(self) -> bool:
        """Every live worker has reported."""
        return all(node.name in self.reported for node in self._state.roster.alive("worker") if node.begun)

    def waits_for(self, worker: str) -> bool:
        """Whether calls of this worker have to wait until it has reported."""
        return self.is_collecting and worker not in self.reported

    # -- journal ---------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "lineage": self.lineage,
            "phase": self.phase.value,
            "reported": self.reported,
            "expected": self._expected,
            "incomplete": self._is_incomplete,
            "snapshot_batches": [[lease_id, batches] for lease_id, batches in self._snapshot_batches.items()],
            "snapshot_next_lease": self._snapshot_next_lease,
            "unclaimed": self._unclaimed,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.lineage = snapshot["lineage"]
        self.phase = ReclaimPhase(snapshot["phase"])
        self.reported = list(snapshot["reported"])
        self._expected = list(snapshot["expected"])
        # Not in the first journals.
        self._is_incomplete = snapshot.get("incomplete", False)
        self._snapshot_batches = dict(snapshot["snapshot_batches"])
        self._snapshot_next_lease = snapshot["snapshot_next_lease"]
        self._unclaimed = {
            dataset: [(epoch, start, end) for epoch, start, end in ranges]
            for dataset, ranges in snapshot["unclaimed"].items()
        }
