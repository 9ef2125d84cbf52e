"""The command log: applies commands to the state, appends them to the journal, and wakes what waits for a change.

The only way to change the state of a job. A reply goes out after the journal has the command (write-ahead), so a master
that is killed and replays the journal is consistent with all its replies.

Failure modes
    The journal cannot be written (a full disk): the caller gets the error instead of a reply, and `failure` is set: the
    state is ahead of the journal, and the master has to end. The journal belongs to another job, or was written by
    another version: `UserError`, and the journal stays as it is.
"""

from __future__ import annotations

from typing import Any, TypeVar

from elasticdl.errors import UserError
from elasticdl.master.commands.codec import decode, encode
from elasticdl.master.commands.command import Command
from elasticdl.master.commands.shards import ReportProgress
from elasticdl.master.dataset_names import TRAINING
from elasticdl.master.job_state import FORM, JobState
from elasticdl.master.journal import Journal
from elasticdl.master.wakeup import Signal

R = TypeVar("R")

# Compacting costs a snapshot (a few KB) and an fsync; replaying a record a few µs. So restarts stay well
# below a second.
_RECORDS_BETWEEN_COMPACTIONS = 20_000
# Beside the state in a journal's snapshot: the job that it belongs to.
_OF = "of"


class CommandLog:
    def __init__(self, *, state: JobState, journal: Journal, identity: dict[str, Any]) -> None:
        """`identity`: of the job, as `remote_snapshot.identity` gives it."""
        self._state = state
        self._journal = journal
        self._identity = identity
        self._records = 0
        self._watched: tuple[Any, ...] = ()
        # Fires after every change but those of single shards.
        self.changed = Signal()
        # Fires when there may be another shard to lease.
        self.work = Signal()
        # Why no command can be applied any more.
        self.failure: UserError | None = None

    # -- recovery --------------------------------------------------------------------------------------------

    def replay(self) -> int | None:
        """Brings the state to where the journal ends. Returns the number of records, None if there is no journal."""
        snapshot, records = self._journal.read()
        if snapshot is not None:
            self._check(snapshot)
            self._state.restore(snapshot)
        count = 0
        for record in records:
            self._state.apply(decode(record))
            count += 1
        return count if snapshot is not None or count else None

    def _check(self, snapshot: dict[str, Any]) -> None:
        """Raises `UserError` if the journal is not one that this job, in this version, may continue."""
        # Not by the JobSpec: another version writes the same one in other words.
        found = snapshot.get(_OF) or self._identity
        if any(found[name] != self._identity[name] for name in ("job", "run")):
            raise UserError(
                f"The journal in {self._journal.folder} is not of this job {self._identity['job']}, but of another one "
                f"(job {found['job']}, run {found['run']}).",
                hint="Every job needs a folder of its own. On a cluster --journal_dir makes one for each.",
            )
        if snapshot.get("form") != FORM:
            raise UserError(
                f"The journal in {self._journal.folder} was written by another version of ElasticDL, which "
                "has other records.",
                hint="Continue with that version, or submit the job again, from its last checkpoint if it has one "
                "(--checkpoint_dir_for_init).",
            )

    def compact(self) -> None:
        self._journal.compact({**self._state.snapshot(), _OF: self._identity})

    # -- commands --------------------------------------------------------------------------------------------

    def do(self, command: Command[R]) -> R:
        """Applies the command and appends it to the journal; returns what its handler returns."""
        result = self._state.apply(command)
        try:
            self._journal.append(encode(command))
            self._records += 1
            if self._records >= _RECORDS_BETWEEN_COMPACTIONS:
                self._records = 0
                self.compact()
        except UserError as error:
            self.failure = error
            self.changed.fire()
            raise
        if not command.frequent or self._watch() != self._watched:
            self.wake()
        elif self.work and isinstance(command, ReportProgress):
            self.work.fire()
        return result

    def wake(self) -> None:
        self._watched = self._watch()
        self.changed.fire()
        self.work.fire()

    def _watch(self) -> tuple[Any, ...]:
        """Returns the inputs of directives, as far as frequent commands can change them."""
        s = self._state
        return (
            s.barrier.number if s.barrier else 0,
            s.cycle.passed,
            s.evaluation.number if s.evaluation else 0,
            s.evaluation is not None and s.ledger.leasable(s.evaluation.dataset),
            s.epochs_ended[-1]["epoch"] if s.epochs_ended else -1,
            s.outcome,
            s.task,
            s.work.proposals,
            s.ledger.epoch(TRAINING) if TRAINING in s.sizes else 0,
        )
