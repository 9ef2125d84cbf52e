"""What a master that comes back without its journal does first: it gathers what its workers remember.

It begins with a snapshot of the state that is some seconds old. Since then workers have done samples, got shards,
finished epochs; all of it is forgotten here, and known to them. Each tells, when it finds a master of another
*lineage*: the shards of about the last minute with how far it got, those it holds, and the newest directive it had.
As long as that is gathered nothing is given out, no cut is taken and nobody is replaced; workers go on with what they
have.

What is told done is done. What a worker holds goes on being its lease. What was given out and nobody tells of goes
back, and the audit lists it as trained again. Numbers (of leases, of cuts) go on far above those of the snapshot, so
that none is given a second meaning.

Failure modes
    A worker that died with the master tells nothing: what it did since the snapshot is trained again. One that tells
    too late loses its leases. The model was lost between the snapshot and the end of the master before: somebody
    tells of a higher generation, and the job goes back to its last checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elasticdl.master.checkpointing.checkpoint_cycle import SavedCheckpoint
from elasticdl.master.commands.shards import AnnounceDataset
from elasticdl.master.dataset_names import EVALUATION, TRAINING
from elasticdl.master.ledger.ledger import Lease, LedgerError
from elasticdl.master.lifecycle.roster import Node
from elasticdl.master.recovery import ledger_recovery
from elasticdl.platforms.platform import NodePhase

if TYPE_CHECKING:
    from elasticdl.master.job_state import JobState

# More than can be given out in the time between two snapshots; few enough for 32 bits after a thousand restarts.
_LEASES_SKIPPED = 1_000_000
_CUTS_SKIPPED = 1_000


@dataclass(frozen=True, kw_only=True)
class Told:
    """One shard as its worker remembers it."""

    lease_id: int
    dataset: str
    epoch: int
    start: int
    # Done up to here.
    position: int
    end: int
    batches: int
    atomic: bool = False
    # It is being worked on; else it is over, and what is not done of it was given up.
    held: bool = False


class ReclaimRound:
    def __init__(self, state: JobState) -> None:
        self._state = state
        # Which line of masters this is: the same for those that go on with the journal of the one before.
        self.lineage = ""
        self.active = False
        self.told: list[str] = []
        # Workers that may have done what nobody else can tell of.
        self._witnesses: list[str] = []
        # Of the snapshot: the batches of each lease, and the number that the next one was to get.
        self._before: dict[int, int] = {}
        self._known_leases = 0
        # What was given out and may have been done, (epoch, start, end) by data set: counted as done again if it
        # still waits in the end.
        self._untold: dict[str, list[tuple[int, int, int]]] = {}

    # -- commands --------------------------------------------------------------------------------------------

    def reopen(self, *, lineage: str, saved: dict[str, Any] | None) -> None:
        """The state has just been restored from an old snapshot. `saved`: the checkpoint to go back to if need be."""
        state = self._state
        self.lineage = lineage
        self.active = True
        self.told = []
        self._witnesses = [node.name for node in state.roster.alive("worker") if node.incarnation]
        state.cycle.set_saved(SavedCheckpoint(**saved) if saved is not None else None)
        self._restart_checkpoint_cycle()
        state.work.withdraw_proposals()
        if not self._known_leases:
            self._known_leases = state.ledger.next_lease
        for lease_id, lease in ledger_recovery.reopen(state.ledger, _LEASES_SKIPPED).items():
            self._before[lease_id] = lease.batches
            self._remember(lease.dataset, [(lease.epoch, lease.position, lease.end)])

    def _restart_checkpoint_cycle(self) -> None:
        """A barrier, a checkpoint or an evaluation under way may be over by now: it is repeated."""
        state = self._state
        under_way = state.cycle.pending is not None or state.evaluation is not None
        reopened = state.ledger.epoch(TRAINING) if under_way and TRAINING in state.sizes else None
        state.evaluations.cancel_and_repeat()
        state.cycle.restart(skipped_numbers=_CUTS_SKIPPED, reopened_epoch=reopened)

    def adopt(self, *, node: str, place: int | None = None) -> None:
        """A worker of this job that was started after the snapshot. `place`: the one that it took, if that is known."""
        roster = self._state.roster
        role, _, number = node.rpartition("-")
        if node in roster.nodes:
            return
        roster.next_number[role] = max(roster.next_number.get(role, 0), int(number) + 1)
        if place is not None and place < roster.targets[role]:
            # Whoever had it before is gone, or on its way out, and will be found to be.
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

    def skip_number(self, *, role: str, number: int) -> None:
        """A node with this number was started after the snapshot: the next one gets a higher."""
        roster = self._state.roster
        if role == "worker":
            self._witnesses.append(f"{role}-{number}")
        roster.next_number[role] = max(roster.next_number.get(role, 0), number + 1)

    def raise_generation(self, *, above: int) -> None:
        """The model was lost after the snapshot: the job goes back to its checkpoint once more."""
        self._state.rollback.run(above=above)

    def tell(
        self,
        *,
        worker: str,
        generation: int,
        seen_generation: int,
        cut: int,
        sizes: dict[str, int],
        epochs_ended: list[dict[str, Any]],
        shards: list[dict[str, Any]],
    ) -> list[int]:
        """What a worker remembers. Returns the leases that it must drop."""
        state = self._state
        told = [Told(**shard) for shard in shards]
        held = [shard.lease_id for shard in told if shard.held]
        node = state.roster.nodes.get(worker)
        if not self.active or worker in self.told or node is None or not node.alive:
            mine = {lease.lease_id for lease in state.ledger.held_by(worker)}
            return [lease_id for lease_id in held if lease_id not in mine]
        self._announce(sizes)
        self.told.append(worker)
        state.cycle.skip_numbers(cut + _CUTS_SKIPPED)
        # Higher than those of the snapshot by more than is skipped, if a master before this one began with it too.
        ledger_recovery.skip_number(state.ledger, max((shard.lease_id for shard in told), default=0))
        if seen_generation > state.generation:
            state.rollback.run(above=seen_generation)
        if generation != state.generation:
            return held
        self._hear_epochs(epochs_ended)
        lost = []
        # The newest first: they show which epochs are over.
        for shard in sorted(told, key=lambda shard: -shard.lease_id):
            if not self._absorb(worker, shard):
                lost.append(shard.lease_id)
        return lost

    def close(self) -> None:
        """Enough has been waited. What nobody told of is done again; if all have told, it had not been done."""
        if not self.active:
            return
        self.active = False
        silent = any(worker not in self.told for worker in self._witnesses)
        for dataset, ranges in self._untold.items():
            if silent and dataset in self._state.ledger.datasets():
                ledger_recovery.give_up_claims(self._state.ledger, dataset, ranges)
        self.lose_model()
        self.told, self._witnesses, self._known_leases = [], [], 0
        state = self._state
        if state.plan.kind == "evaluate" and EVALUATION in state.sizes and not state.results:
            state.evaluations.begin(number=state.cycle.passed + 1, epoch=-1)

    def lose_model(self) -> None:
        """The ledger has gone back to a checkpoint, and what it counts as done again includes all this."""
        self._untold.clear()
        self._before.clear()

    # -- what is told ----------------------------------------------------------------------------------------

    def _announce(self, sizes: dict[str, int]) -> None:
        for dataset, size in sizes.items():
            if self._state.plan.kind != "evaluate":
                self._state.schedule.announce(AnnounceDataset(dataset=dataset, size=size))
            else:
                # Its evaluation begins when everything has been told.
                if dataset not in self._state.sizes:
                    self._state.dataset_sizes.announce(dataset, size)

    def _hear_epochs(self, ended: list[dict[str, Any]]) -> None:
        """Ends of epochs that callbacks have heard of are behind everybody."""
        state = self._state
        known = state.epochs_ended[-1]["epoch"] if state.epochs_ended else -1
        newer = [epoch for epoch in ended if epoch["epoch"] > known]
        if not newer or TRAINING not in state.sizes:
            return
        state.epochs.learn(newer)
        last = newer[-1]["epoch"]
        if last >= state.ledger.epoch(TRAINING):
            ledger_recovery.complete_epoch(state.ledger, TRAINING, last)
        state.cycle.learn_closed_epoch(last)

    def _absorb(self, worker: str, told: Told) -> bool:
        """False if the worker holds it no more."""
        ledger = self._state.ledger
        news = told.lease_id in self._before or told.lease_id >= self._known_leases
        if not news or told.dataset not in ledger.datasets():
            # The snapshot has its end.
            return not told.held
        try:
            if told.position > told.start:
                done, given_out = ledger_recovery.claim_done(
                    ledger, told.dataset, epoch=told.epoch, start=told.start, end=told.position
                )
                self._remember(told.dataset, given_out)
                if done:
                    ledger.steps += max(0, told.batches - self._before.get(told.lease_id, 0))
            if not told.held or told.position >= told.end:
                return True
            kept, given_out = ledger_recovery.claim_lease(
                ledger,
                Lease(
                    lease_id=told.lease_id,
                    dataset=told.dataset,
                    worker=worker,
                    epoch=told.epoch,
                    start=told.start,
                    end=told.end,
                    failures=0,
                    position=told.position,
                    batches=told.batches,
                ),
                atomic=told.atomic,
            )
            self._remember(told.dataset, given_out)
        except LedgerError:
            # Of another data set than this one.
            return not told.held
        return kept

    def _remember(self, dataset: str, given_out: list[tuple[int, int, int]]) -> None:
        self._untold.setdefault(dataset, []).extend(given_out)

    # -- questions -------------------------------------------------------------------------------------------

    @property
    def complete(self) -> bool:
        """Every worker that there is has told."""
        return all(node.name in self.told for node in self._state.roster.alive("worker") if node.begun)

    def waits_for(self, worker: str) -> bool:
        """What this worker says can be understood only when it has told what it remembers."""
        return self.active and worker not in self.told

    # -- journal ---------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "lineage": self.lineage,
            "active": self.active,
            "told": self.told,
            "witnesses": self._witnesses,
            "before": [[lease_id, batches] for lease_id, batches in self._before.items()],
            "known_leases": self._known_leases,
            "untold": self._untold,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.lineage = snapshot["lineage"]
        self.active = snapshot["active"]
        self.told = list(snapshot["told"])
        self._witnesses = list(snapshot["witnesses"])
        self._before = dict(snapshot["before"])
        self._known_leases = snapshot["known_leases"]
        self._untold = {
            dataset: [(epoch, start, end) for epoch, start, end in ranges]
            for dataset, ranges in snapshot["untold"].items()
        }
