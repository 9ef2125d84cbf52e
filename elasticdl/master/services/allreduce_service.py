"""The master's side of elastic all-reduce on the network: rounds out, reports in.

Who is in a round is decided in `rendezvous.py`, what steps mean for the job in `training_steps.py`; here they meet
the calls of workers, the platform's word on who is alive, and the clock.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from elasticai_api.proto import allreduce_pb2 as pb
from elasticai_api.proto.allreduce_pb2_grpc import AllReduceServicer
from elasticdl.master.allreduce.rendezvous import PATIENCE, RETURN_SECONDS, Rendezvous
from elasticdl.master.commands.nodes import ReportFailure
from elasticdl.master.commands.programs import (
    AdvanceSteps,
    HoldTrainingState,
    OpenDataset,
    ReleaseTrainingState,
)
from elasticdl.master.commands.shards import UnreadableSamples
from elasticdl.master.job_state import JobState
from elasticdl.master.ledger.dataset_announcement import DatasetAnnouncement
from elasticdl.master.ledger.ledger import LedgerError
from elasticdl.master.master import Master

log = logging.getLogger("elasticdl.master")

# A waiting stream looks around so often though nothing was signalled, so that a broken connection is noticed.
_HOLD_SECONDS = 20.0
# More at once would be no gain: a worker reads a few micro-batches ahead.
_MOST_ORDER = 4096

Context = grpc.aio.ServicerContext[Any, Any]


class AllReduceService(AllReduceServicer):
    def __init__(self, master: Master, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._master = master
        self._clock = clock
        self._rendezvous = Rendezvous(capacity=max(1, master.plan.workers))
        self._generation = master.state.generation
        self._looked = False
        self._logged = 0
        # The reported duration of a step.
        self._step_seconds = 0.0
        # Until then there was a reason not to come to a round.
        self._still_until = clock()
        self._timers: set[asyncio.Task[None]] = set()

    # -- the data --------------------------------------------------------------------------------------------

    async def Open(self, request: pb.OpenRequest, context: Context) -> pb.OpenReply:
        announcement = DatasetAnnouncement(
            name=request.dataset,
            size=request.size,
            batch_size=request.batch_size,
            epochs=request.epochs,
            minibatches_per_shard=1,
            shuffle_shards=request.shuffle,
        )
        try:
            self._master.do(OpenDataset(announcement=announcement))
        except LedgerError as error:
            # Invalid data of a program fails the job.
            self._master.do(ReportFailure(node="", kind="data", message=str(error), traceback="", lease_id=0))
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return pb.OpenReply(generation=self._master.state.generation)

    async def Order(self, request: pb.OrderRequest, context: Context) -> pb.OrderReply:
        if not 0 <= request.count <= _MOST_ORDER:
            await context.abort(grpc.StatusCode.OUT_OF_RANGE, f"At most {_MOST_ORDER} at once.")
        try:
            starts = self._master.state.ledger.order(
                request.dataset, epoch=request.epoch, first=request.first, count=request.count
            )
        except LedgerError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return pb.OrderReply(starts=starts)

    # -- rounds ----------------------------------------------------------------------------------------------

    async def Gather(self, request: pb.GatherRequest, context: Context) -> AsyncIterator[pb.Standing]:
        self._master.detector.program_reported(request.worker, self._master.clock())
        self._look()
        if request.generation == self._generation and self._alive(request.worker):
            self._rendezvous.ready(
                worker=request.worker,
                incarnation=request.incarnation,
                address=request.address,
                since=request.since,
                known_round=request.round,
            )
            self._tell()
        sent = None
        while True:
            standing = self._standing(request.worker, request.dataset)
            if standing != sent:
                sent = standing
                yield standing
                if standing.finished:
                    return
                # Sending gave way to other calls: look again before waiting, or their change would be missed.
                continue
            await self._master.changed.wait(_HOLD_SECONDS)

    async def Synced(self, request: pb.SyncedRequest, context: Context) -> pb.SyncedReply:
        state = self._master.state
        if request.generation == state.generation:
            self._rendezvous.synced(request.worker, request.round)
            if request.worker not in state.steps.holders:
                self._master.do(
                    HoldTrainingState(
                        worker=request.worker,
                        dataset=request.dataset,
                        older=self._rendezvous.older_than(request.worker),
                    )
                )
        return pb.SyncedReply()

    async def Broken(self, request: pb.BrokenRequest, context: Context) -> pb.BrokenReply:
        log.info("%s has lost a connection of round %d: %s", request.worker, request.round, request.reason)
        self._rendezvous.broken(request.worker, request.round, self._clock())
        self._later(PATIENCE)
        return pb.BrokenReply()

    def _later(self, seconds: float) -> None:
        """Looks again when so much time has passed, and a little."""
        timer = asyncio.create_task(self._meet_again(seconds * 1.1))
        self._timers.add(timer)
        timer.add_done_callback(self._timers.discard)

    async def _meet_again(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._rendezvous.tick(self._clock())
        self._tell()
        if self._rendezvous.incomplete:
            self._later(PATIENCE)

    async def Waiting(self, request: pb.WaitingRequest, context: Context) -> pb.WaitingReply:
        now = self._clock()
        self._step_seconds = request.step_seconds or self._step_seconds
        if request.meeting and self._excused(request.seconds):
            self._still_until = now
        seconds = min(request.seconds, now - self._still_until)
        self._rendezvous.waiting(request.worker, request.round, seconds, now)
        limit = self._stall_limit()
        if limit:
            for worker in self._rendezvous.hanging(limit, now):
                await self._master.supervisor.kill_straggler(worker, timeout_seconds=limit)
        return pb.WaitingReply()

    def _excused(self, seconds: float) -> bool:
        """Whether a member may be late: the job saves, evaluates or ends an epoch, which may take its time."""
        state, most = self._master.state, self._master.plan.start_timeout_seconds
        stands_still = state.barrier or state.cycle.pending or state.evaluation or state.task
        return bool(stands_still) and (not most or seconds < most)

    def _stall_limit(self) -> float:
        """Returns how long a member may delay the others; 0: indefinitely."""
        plan = self._master.plan
        if not plan.stall_factor:
            return 0.0
        if not self._step_seconds:
            # The usual duration is unknown yet, and the first step often takes longest.
            return (
                max(plan.stall_floor_seconds, plan.start_timeout_seconds)
                if plan.start_timeout_seconds
                else 0.0
            )
        return max(plan.stall_floor_seconds, plan.stall_factor * self._step_seconds)

    async def Leave(self, request: pb.LeaveRequest, context: Context) -> pb.LeaveReply:
        if request.worker in self._master.state.steps.holders:
            self._master.do(ReleaseTrainingState(worker=request.worker))
        self._rendezvous.leave(request.worker, request.incarnation)
        self._tell()
        return pb.LeaveReply()

    # -- steps -----------------------------------------------------------------------------------------------

    async def Advance(self, request: pb.AdvanceRequest, context: Context) -> pb.AdvanceReply:
        state = self._master.state
        if request.generation != state.generation:
            return pb.AdvanceReply()
        try:
            done = self._master.do(
                AdvanceSteps(
                    worker=request.worker,
                    report_id=request.report_id,
                    dataset=request.dataset,
                    epoch=request.epoch,
                    at=request.at,
                    step=request.step,
                    loss_sum=request.loss_sum,
                    loss_steps=request.loss_steps,
                    stop_training=request.stop_training,
                    bad=[
                        UnreadableSamples(
                            dataset=request.dataset, start=b.start, end=b.end, where=b.where, reason=b.reason
                        )
                        for b in request.bad
                    ],
                )
            )
        except LedgerError as error:
            if request.dataset not in state.ledger.datasets() and self._alive(request.worker):
                self._master.note_unknown_dataset(request.worker, request.dataset)
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._step_seconds = request.step_seconds or self._step_seconds
        loss = request.loss_sum / request.loss_steps if request.loss_steps else None
        self._master.detector.progress_reported(
            request.worker, self._master.clock(), batch_seconds=request.step_seconds
        )
        self._master.note_progress(done, loss)
        return pb.AdvanceReply()

    # -- inside ----------------------------------------------------------------------------------------------

    def _alive(self, worker: str) -> bool:
        node = self._master.state.roster.nodes.get(worker)
        return node is not None and node.alive

    def _look(self) -> None:
        """Takes over what the state says of nodes and generations."""
        state = self._master.state
        if not self._looked:
            self._looked = True
            if state.steps.holders:
                self._rendezvous.resume(state.steps.holders, self._clock())
                self._later(RETURN_SECONDS)
        if state.generation != self._generation:
            self._generation = state.generation
            self._rendezvous.clear()
        self._rendezvous.keep([n.name for n in state.roster.nodes.values() if n.alive])

    def _tell(self) -> None:
        current = self._rendezvous.round
        if current.number != self._logged:
            self._logged = current.number
            log.info("Round %d: %s.", current.number, ", ".join(current.workers) or "no members")
            self._master.wake()

    def _standing(self, worker: str, dataset: str) -> pb.Standing:
        self._look()
        self._tell()
        state = self._master.state
        current = self._rendezvous.round
        standing = pb.Standing(
            round=current.number,
            members=[pb.Member(worker=m.worker, address=m.address) for m in current.members],
            generation=state.generation,
            first_step=state.first_step,
            restore_from=state.restore_from,
            per_step=self._rendezvous.capacity,
            last_step=state.plan.max_step,
            finished=bool(state.outcome) or not self._alive(worker),
            fresh=state.steps.is_fresh,
            concluded=state.steps.is_concluded,
            leaving=self._alive(worker) and state.roster.nodes[worker].goes,
        )
        _fill_in_data(standing, state, dataset)
        return standing


def _fill_in_data(standing: pb.Standing, state: JobState, dataset: str) -> None:
    if dataset not in state.ledger.datasets():
        return
    spec = state.ledger.spec(dataset)
    epoch, at = state.ledger.place(dataset)
    standing.size = spec.size
    standing.batch_size = spec.batch_size
    standing.epochs = spec.epochs
    standing.epoch = epoch
    standing.at = at
    standing.step = state.ledger.steps
    standing.open_epochs = epoch + 1 if spec.gated else spec.epochs
    standing.stopped = state.ledger.stopped(dataset) or state.training_over or bool(state.stopping)
