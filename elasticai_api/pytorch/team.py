"""A member of a training by all-reduce: its loop over micro-batches, across failures of other members.

The member asks `next` for a micro-batch, computes its gradients into `parameter.grad`, and calls `done`. With its last
micro-batch of a step it exchanges gradients with the others, and the optimizer steps. `next` returns None when there is
nothing to compute now: the training is paused (an agreed pause, the end of an epoch with an evaluation, the end), or
there is no round.

Invariants
    Step k trains the same micro-batches with any set of members; their gradients are weighted by samples; all members
    have the same state between two steps. A step is reported to the master only when every member is known to have made
    it, so that each survivor has at least the progress of the ledger.

When the members change
    All members join the next round and report their progress. Some may have finished the step that others failed in:
    members that are behind, and new ones, get the state of the oldest that is furthest. Members keep what they computed
    of the unfinished step, the rest is divided. A death costs what the dead member had computed of one step.

Agreements
    A pause is a barrier: at the same step for all. A member requests it with the numbers that are added up in a step,
    and all pause after that step. The same applies to the change to a round with new members.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator

import torch

from elasticai_api.proto import allreduce_pb2 as pb
from elasticai_api.pytorch.advances import Advances
from elasticai_api.pytorch.assignment import shares, usual_share, valid_claims
from elasticai_api.pytorch.devices import AUTO, all_by_nccl, gpu_identity
from elasticai_api.pytorch.gradients import Gradients
from elasticai_api.pytorch.group import Group, GroupBroken, MeetingPoint, connect_gpus, form
from elasticai_api.pytorch.order import Order
from elasticai_api.pytorch.place import MicroBatch, Place
from elasticai_api.pytorch.replica import Replica, send_state
from elasticai_api.pytorch.standings import Line, Standings

log = logging.getLogger("elasticai_api")

# Where a newer round has only more members, those of the older one finish their step first, if it takes no longer.
_FINISH_SECONDS = 1.0
# How often a member that waits says so.
_WAITING_SECONDS = 5.0

# Places in the row that a member tells of itself when a round begins.
_HAS, _STEP, _EPOCH, _AT, _PAUSE, _ENDED, _UNSETTLED, _GPU, _CLAIMS = range(9)
# Places in the numbers that are added up with every step; the wanted pause of each member follows them.
_SAMPLES, _LOSS, _REGROUP, _END, _PAUSES = range(5)


def _nothing() -> int:
    return 0


class Team:
    def __init__(
        self,
        *,
        line: Line,
        meeting: MeetingPoint,
        dataset: str,
        generation: int,
        replica: Replica,
        wants_pause: Callable[[], int] = _nothing,
        pause_is_over: Callable[[int], bool] = lambda number: False,
        interrupted: Callable[[], bool] = lambda: False,
        changed: Callable[[], None] = lambda: None,
        first_report: int = 0,
        backend: str = AUTO,
    ) -> None:
        """`wants_pause`: the number of the pause that this member wants after the next step, or 0. `pause_is_over`: as
        far as this member knows. `interrupted`: nothing is worth waiting for any more. `changed` is called whenever
        `next` may have something new.
        """
        self._line = line
        self._meeting = meeting
        self._dataset = dataset
        self._generation = generation
        self._replica = replica
        self._backend = backend
        self._gpu = gpu_identity(replica.parameters(), backend)
        self._wants_pause = wants_pause
        self._pause_is_over = pause_is_over
        self._interrupted = interrupted
        self._standings = Standings(
            line, address=meeting.address, generation=generation, dataset=dataset, changed=changed
        )
        self._advances = Advances(line, generation=generation, dataset=dataset, first_number=first_report)
        self._gradients: Gradients | None = None
        self._order: Order | None = None
        self._group: Group | None = None
        # The newest round that cannot be used (any more).
        self._spent = 0
        self._newer_since: float | None = None
        self._waiting_since = 0.0
        self._reported_waiting_at = 0.0
        # Of this step, counted from its first micro-batch: what this member has to do, and what it has done.
        self._share: list[int] = []
        self._computed: set[int] = set()
        self._samples = 0.0
        self._loss = 0.0
        self._began = time.monotonic()
        self._settled = True
        # Where the training is; None before this member has its state.
        self.place: Place | None = None
        # The number of the pause that was agreed on, until it is known to be over; then 0.
        self.pause = 0
        # No more steps, ever.
        self.ended = False
        # The mean loss of the last step, over all members.
        self.last_loss: float | None = None
        # Changes whenever what comes next may be another than what was read ahead.
        self.version = 0

    # -- what is known ---------------------------------------------------------------------------------------

    def standing(self) -> pb.Standing:
        return self._standings.newest()

    @property
    def first(self) -> bool:
        """This member is the one that saves, and does what only one must do."""
        members = self.standing().members
        return self.place is not None and bool(members) and members[0].worker == self._line.worker

    @property
    def members(self) -> tuple[str, ...]:
        return self._group.workers if self._group is not None else ()

    @property
    def between_steps(self) -> bool:
        return not self._computed

    @property
    def halted(self) -> bool:
        """No member is in a step, all have the same state, and the master may know it."""
        return self._group is not None and self.place is not None and self._settled and self._halted()

    @property
    def over(self) -> bool:
        """Whether this team has nothing left to do: the job is over, or its generation."""
        standing = self.standing()
        return standing.finished or standing.generation != self._generation

    @property
    def complete(self) -> bool:
        """All epochs have been trained."""
        place, standing = self.place, self.standing()
        return place is not None and (self.ended or place.epoch >= standing.epochs)

    @property
    def superfluous(self) -> bool:
        """The training is over, and this worker never received its state: it has nothing to train or to save."""
        return self.place is None and self.standing().concluded

    # -- micro-batches ---------------------------------------------------------------------------------------

    def next(self) -> MicroBatch | None:
        """Returns the micro-batch to compute next; None if there is none before something changes."""
        while not self.over:
            self._advances.check()
            if self._group is None and not self._meet():
                if self._can_meet():
                    continue
                return None
            assert self.place is not None
            if self._halted():
                if self._regroup_while_halted():
                    continue
                return None
            for offset in self._share:
                if offset not in self._computed:
                    return self._micro_batch(offset)
            self._reduce()
        return None

    def done(self, samples: int, loss: float, bad: list[pb.Unreadable] | None = None) -> bool:
        """The micro-batch that `next` gave is computed: its gradients are added to `parameter.grad`. True if that
        completed a step.
        """
        assert self.place is not None
        offset = next(o for o in self._share if o not in self._computed)
        self._computed.add(offset)
        self._samples += samples
        self._loss += loss * samples
        if bad:
            self._advances.note_bad(bad, self._known())
        if len(self._computed) == len(self._share):
            return self._reduce()
        return False

    def expect(self, samples: int, *, last: bool = True) -> None:
        """Announces that the gradients of so many samples are computed next. `last`: no others of the micro-batch
        follow.
        """
        completes = last and len(self._computed) + 1 == len(self._share)
        self._gradient_sums().expect(samples, group=self._group if completes else None)

    def upcoming(self, version: int) -> Iterator[MicroBatch]:
        """Yields what `next` will return if nothing changes; for reading ahead, from any thread. Ends when something
        has changed, or where the next micro-batch is not known.
        """
        place, group, share = self.place, self._group, list(self._share)
        if place is None or group is None:
            return
        computed = set(self._computed)
        while version == self.version:
            for offset in share:
                if offset not in computed:
                    yield self._order_of().micro_batch(
                        step=place.step, epoch=place.epoch, place=place.at + offset
                    )
            place = self._after(place)
            if place.epoch >= self.standing().open_epochs:
                return
            computed = set()
            share = usual_share(self._count(place), group.size, group.rank)

    # -- reporting -------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """The master knows how far the training is. Only where it halts, or this member is about to leave."""
        if self.place is not None and self._settled:
            self._advances.note(self._reported(self.place))
        self._advances.flush()

    def ask_to_stop(self) -> None:
        self._advances.ask_to_stop(self._known())

    def leave(self) -> None:
        """Takes no part any more. To be called between steps, or what this member computed is computed again."""
        self._drop_group("")
        self._line.call(
            self._line.stub.Leave,
            pb.LeaveRequest(worker=self._line.worker, incarnation=self._line.incarnation),
        )

    def close(self) -> int:
        """Returns the number of the last report, where the next team of this process goes on."""
        self._drop_group("")
        self._standings.close()
        return self._advances.close()

    # -- places ----------------------------------------------------------------------------------------------

    def _order_of(self) -> Order:
        if self._order is None:
            standing = self.standing()
            self._order = Order(self._line, self._dataset, size=standing.size, batch_size=standing.batch_size)
        return self._order

    def _count(self, place: Place) -> int:
        """Micro-batches of the step that begins there."""
        return max(0, min(self.standing().per_step, self._order_of().count - place.at))

    def _after(self, place: Place) -> Place:
        return self._normal(Place(step=place.step + 1, epoch=place.epoch, at=place.at + self._count(place)))

    def _normal(self, place: Place) -> Place:
        """The end of an epoch is the beginning of the next."""
        if place.at < self._order_of().count:
            return place
        return Place(step=place.step, epoch=place.epoch + 1, at=0)

    def _micro_batch(self, offset: int) -> MicroBatch:
        assert self.place is not None
        place = self.place
        return self._order_of().micro_batch(step=place.step, epoch=place.epoch, place=place.at + offset)

    def _halted(self) -> bool:
        """There is no step to make now. The same for all members at the same place, but for how new their news are."""
        assert self.place is not None
        if self.pause and self._pause_is_over(self.pause):
            # Looked at here and not where the news come: in a new round a member gets it back from one that does not
            # know its end yet.
            self.pause = 0
        standing = self.standing()
        if self.pause or self.ended or (standing.last_step and self.place.step >= standing.last_step):
            return True
        return self.place.epoch >= standing.open_epochs

    def _reported(self, place: Place) -> Place:
        """Converts a place to the ledger's count, in which the end of an epoch belongs to that epoch."""
        if place.at or not place.epoch:
            return place
        return Place(step=place.step, epoch=place.epoch - 1, at=self._order_of().count)

    def _known(self) -> Place:
        """A place that the ledger has passed, for reports of something else."""
        return Place(step=0, epoch=self.standing().epoch, at=0)

    # -- rounds ----------------------------------------------------------------------------------------------

    def _meet(self) -> bool:
        """Connects with the members of the newest round. False if there is none to take part in yet."""
        if not self._can_meet():
            return False
        standing = self.standing()
        workers = [member.worker for member in standing.members]
        started = self._waiting_since = time.monotonic()
        rank = workers.index(self._line.worker)
        self._newer_since = None
        group: Group | None = None
        try:
            group = form(
                number=standing.round,
                rank=rank,
                workers=workers,
                address=standing.members[0].address,
                meeting=self._meeting,
                stale=lambda: self._round_is_over(standing.round),
            )
            group.watch(lambda: self._stale(standing))
            self._sync(group, standing.members[0].address)
        except GroupBroken as broken:
            self._spent = standing.round
            self._group = group
            self._drop_group(str(broken))
            return False
        self._group = group
        self.version += 1
        log.info(
            "Round %d: %d of %d, at step %d; met in %.0f ms.",
            group.number,
            group.rank + 1,
            group.size,
            self.place.step if self.place else -1,
            1000 * (time.monotonic() - started),
        )
        return True

    def _can_meet(self) -> bool:
        standing = self.standing()
        present = any(member.worker == self._line.worker for member in standing.members)
        waits = standing.round > self._spent and not self.superfluous and not self.over
        return present and standing.size > 0 and waits

    def _round_is_over(self, number: int) -> bool:
        """Whether waiting for the other members of this round is pointless."""
        self._say_waiting(number)
        return self.standing().round != number or self.superfluous or self.over or self._interrupted()

    def _stale(self, then: pb.Standing) -> bool:
        """Whether waiting in the group of that standing is pointless, or has timed out."""
        now = time.monotonic()
        newest = self.standing()
        if self.over or self._interrupted():
            return True
        if newest.round == then.round:
            self._say_waiting(then.round)
            return False
        present = {member.worker for member in newest.members}
        if any(member.worker not in present for member in then.members):
            return True
        self._newer_since = self._newer_since or now
        return now - self._newer_since > _FINISH_SECONDS

    def _say_waiting(self, number: int) -> None:
        """Reports that this member waits; the master kills members that block the others indefinitely."""
        now = time.monotonic()
        if now - max(self._waiting_since, self._reported_waiting_at) < _WAITING_SECONDS:
            return
        self._reported_waiting_at = now
        self._line.call(
            self._line.stub.Waiting,
            pb.WaitingRequest(
                worker=self._line.worker,
                round=number,
                seconds=now - self._waiting_since,
                step_seconds=self._advances.step_seconds,
                meeting=self._group is None,
            ),
        )

    def _drop_group(self, reason: str) -> None:
        group, self._group = self._group, None
        self.version += 1
        if group is None:
            return
        self._spent = max(self._spent, group.number)
        group.close()
        if reason and self.standing().round == group.number and not self.over:
            self._line.call(
                self._line.stub.Broken,
                pb.BrokenRequest(worker=self._line.worker, round=group.number, reason=reason[:500]),
            )

    def _regroup_while_halted(self) -> bool:
        """Joins a new round at once, which is safe between steps."""
        if self._group is not None and self.standing().round != self._group.number:
            self._drop_group("")
            return True
        return False

    # -- the beginning of a round ----------------------------------------------------------------------------

    def _sync(self, group: Group, address: str) -> None:
        """Brings all members to the same state and divides what is left of the step."""
        rows = self._exchange_rows(group)
        if group.size > 1 and all_by_nccl([row[_GPU] for row in rows], self._backend):
            device = self._replica.parameters()[0].device
            group.carry("cuda", lambda: connect_gpus(group=group, address=address, device=device))
        having = [rank for rank, row in enumerate(rows) if row[_HAS]]
        furthest = max((rows[rank][_STEP] for rank in having), default=-1)
        source = next((rank for rank in having if rows[rank][_STEP] == furthest), 0)
        if not having and group.rank == 0:
            if not self.standing().fresh:
                raise GroupBroken("members with the state of the training have not joined yet")
            self._start()
        behind = [rank for rank, row in enumerate(rows) if not row[_HAS] or row[_STEP] < furthest]
        taking = group.rank in behind and group.rank != source
        row = torch.tensor(self._row() if group.rank == source else [0] * _CLAIMS, dtype=torch.int64)
        group.broadcast([row], source)
        received = row.tolist()
        if any(rank != source for rank in behind):
            send_state(group, source, self._replica, take=taking)
        if taking:
            # Nothing that could fail lies between the state and its place.
            self.place = Place(step=received[_STEP], epoch=received[_EPOCH], at=received[_AT])
            self._forget_step()
        # A member may know of an agreement in a step that disconnected members made without it.
        furthest_rows = [r for rank, r in enumerate(rows) if rank not in behind]
        self.pause = max((r[_PAUSE] for r in furthest_rows), default=0)
        self.ended = any(r[_ENDED] for r in furthest_rows)
        self._standings.synced(group.number)
        self._line.call(
            self._line.stub.Synced,
            pb.SyncedRequest(
                worker=self._line.worker,
                round=group.number,
                generation=self._generation,
                dataset=self._dataset,
            ),
        )
        self._divide(group, rows, behind)
        if any(r[_UNSETTLED] for r in furthest_rows):
            self._settle(group)

    def _start(self) -> None:
        standing = self.standing()
        self._replica.start(standing.restore_from)
        self.place = self._normal(Place(step=standing.step, epoch=standing.epoch, at=standing.at))

    def _row(self) -> list[int]:
        if self.place is None:
            return [0] * _GPU + [self._gpu]
        place = self.place
        flags = [self.pause, int(self.ended), int(not self._settled)]
        return [1, place.step, place.epoch, place.at, *flags, self._gpu]

    def _exchange_rows(self, group: Group) -> list[list[int]]:
        """Exchanges the state of every member: its row, and a 1 for each micro-batch it has computed."""
        width = _CLAIMS + self.standing().per_step
        table = torch.zeros(group.size, width, dtype=torch.int64)
        table[group.rank, :_CLAIMS] = torch.tensor(self._row(), dtype=torch.int64)
        for offset in self._computed:
            table[group.rank, _CLAIMS + offset] = 1
        group.sum([table])
        rows: list[list[int]] = table.tolist()
        return rows

    def _divide(self, group: Group, rows: list[list[int]], behind: list[int]) -> None:
        assert self.place is not None
        claims = [
            set() if rank in behind else {i for i, claimed in enumerate(row[_CLAIMS:]) if claimed}
            for rank, row in enumerate(rows)
        ]
        valid = valid_claims(claims)
        if valid[group.rank] != self._computed:
            self._forget_step()
        self._share = shares(valid, self._count(self.place))[group.rank]

    # -- steps -----------------------------------------------------------------------------------------------

    def _gradient_sums(self) -> Gradients:
        if self._gradients is None:
            standing = self.standing()
            usual_samples = float(max(1, standing.per_step * standing.batch_size))
            self._gradients = Gradients(self._replica.parameters(), usual_samples=usual_samples)
        return self._gradients

    def _forget_step(self) -> None:
        self._computed = set()
        self._samples = self._loss = 0.0
        if self._gradients is not None:
            self._gradients.clear()

    def _begin_step(self) -> None:
        assert self.place is not None
        self._forget_step()
        if self._group is not None:
            self._share = usual_share(self._count(self.place), self._group.size, self._group.rank)

    def _reduce(self) -> bool:
        """Adds up with the others and steps. False if the group broke: then everything is as it was."""
        assert self.place is not None
        group = self._group
        if group is None:
            return False
        standing = self.standing()
        numbers = torch.zeros(_PAUSES + group.size, dtype=torch.float64)
        numbers[_SAMPLES], numbers[_LOSS] = self._samples, self._loss
        numbers[_REGROUP] = float(standing.round != group.number)
        numbers[_END] = float(standing.stopped)
        numbers[_PAUSES + group.rank] = float(self._wants_pause())
        self._waiting_since = time.monotonic()
        try:
            self._gradient_sums().reduce(group, numbers)
        except GroupBroken as broken:
            self._drop_group(str(broken))
            return False
        totals = numbers.tolist()
        if totals[_SAMPLES]:
            self.last_loss = totals[_LOSS] / totals[_SAMPLES]
            self._replica.apply()
        before, self.place = self.place, self._after(self.place)
        now = time.monotonic()
        seconds, self._began = now - self._began, now
        self._advances.note_seconds(seconds)
        if group.rank == 0:
            if totals[_SAMPLES] and self.last_loss is not None and math.isfinite(self.last_loss):
                self._advances.note_loss(self.last_loss)
            # All have come here, so all have made the step before. Who is alone has made this one too.
            self._advances.note(self._reported(self.place if group.size == 1 else before))
        self.pause = int(max(totals[_PAUSES:]))
        self.ended = bool(totals[_END])
        self._begin_step()
        self._settled = False
        if totals[_REGROUP]:
            self._drop_group("")
            return True
        if self.pause or self.ended or self.place.at == 0 or self.place.step == standing.last_step:
            try:
                self._settle(group)
            except GroupBroken as broken:
                self._drop_group(str(broken))
        return True

    def _settle(self, group: Group) -> None:
        """Makes sure that all have made this step, and are the same in what they changed each for itself."""
        assert self.place is not None
        buffers = self._replica.buffers()
        copies = [buffer.detach().clone() for buffer in buffers]
        group.sum([torch.zeros(1), *copies])
        for buffer, total in zip(buffers, copies, strict=True):
            buffer.detach().copy_(total / group.size)
        self._settled = True
        if group.rank == 0:
            self._advances.note(self._reported(self.place))
