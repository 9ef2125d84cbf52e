"""The master's gRPC service: messages in, commands to the state machine, answers out.

No decision is taken here. Calls that wait (a lease, a watch) wait on the master's signals and look again;
nothing is polled. The token was checked before any of these is reached.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from typing import Any

import grpc
import grpc.aio

from elasticdl.jobs.spec import to_yaml
from elasticdl.master.commands.checkpoints import FailCheckpoint, ReachBarrier
from elasticdl.master.commands.evaluations import ClaimEvaluation, FinishEvaluation, ReportEvaluation
from elasticdl.master.commands.job import AddRemarks, FinishTask, StopJob
from elasticdl.master.commands.nodes import JoinNode, ReportFailure
from elasticdl.master.commands.recovery import ReclaimShards, ReportedShard
from elasticdl.master.commands.shards import (
    AnnounceDataset,
    LeaseShards,
    ReportProgress,
    TruncateLease,
    UnreadableSamples,
)
from elasticdl.master.dataset_names import TRAINING
from elasticdl.master.ledger.ledger import LedgerError, LostLease
from elasticdl.master.lifecycle import evaluation
from elasticdl.master.master import Master
from elasticdl.master.services.directive_board import DirectiveBoard
from elasticdl.master.services.directives import epoch_ends
from elasticdl.master.services.scale_limits import CannotScale, scale
from elasticdl.master.status import job_status
from elasticdl.ps.checkpoint.checkpoint_folders import SavedFile
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire.master_pb2_grpc import MasterServicer

log = logging.getLogger("elasticdl.master")

# A waiting call is answered with "nothing yet" after so long, so that a broken connection is noticed.
_HOLD_SECONDS = 20.0

Context = grpc.aio.ServicerContext[Any, Any]


class MasterService(MasterServicer):
    def __init__(self, master: Master) -> None:
        self._master = master
        self._spec_yaml = to_yaml(master.spec)
        self._board = DirectiveBoard(master)
        # The nodes that have joined this process.
        self._connected: set[str] = set()

    # -- nodes -----------------------------------------------------------------------------------------------

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.JoinReply:
        await self._master.list_nodes()
        if request.node not in self._connected:
            # Later on, what a node remembers may be of this master.
            if not self._master.compare_journal(request.node, lineage=request.lineage, end=request.journal):
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the journal is an older copy")
            self._connected.add(request.node)
        node = self._master.state.roster.nodes.get(request.node)
        again = (
            node is not None and node.incarnation == request.incarnation and node.address == request.address
        )
        if not again and not self._master.do(
            JoinNode(node=request.node, incarnation=request.incarnation, address=request.address)
        ):
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"{request.node} is not a node of this job (any more)"
            )
        if not again:
            log.info("%s has joined.", request.node)
        return pb.JoinReply(
            job_spec=self._spec_yaml,
            job_dir=str(self._master.folder),
            lineage=self._master.state.reclaim.lineage,
        )

    async def Tell(self, request: pb.TellRequest, context: Context) -> pb.TellReply:
        await self._check_member(request.node, context)
        try:
            lost = self._master.do(
                ReclaimShards(
                    worker=request.node,
                    generation=request.generation,
                    seen_generation=request.seen_generation,
                    barrier=request.barrier,
                    sizes=dict(request.sizes),
                    epochs_ended=[
                        {"epoch": e.epoch, "metrics": dict(e.metrics), "loss": e.loss}
                        for e in request.epochs_ended
                    ],
                    shards=[
                        ReportedShard(
                            lease_id=s.lease_id,
                            dataset=s.dataset,
                            epoch=s.epoch,
                            start=s.start,
                            position=s.position,
                            end=s.end,
                            batches=s.batches,
                            atomic=s.atomic,
                            held=s.held,
                            applied=s.applied_buckets.hex(),
                        )
                        for s in request.shards
                    ],
                )
            )
        except LedgerError as error:
            self._fail_data(request.node, error)
            lost = [s.lease_id for s in request.shards]
        log.info(
            "%s has reported %d shards; %d of them are lost.",
            request.node,
            len(request.shards),
            len(lost),
        )
        return pb.TellReply(lost_leases=lost)

    async def _check_member(self, node: str, context: Context) -> None:
        """Rejects what is said in the name of a node that this job has not, or has no more."""
        await self._master.list_nodes()
        if node not in self._master.state.roster.nodes:
            log.warning("Rejecting a call of %.100r: it is no node of this job.", node)
            await context.abort(
                grpc.StatusCode.NOT_FOUND, f"{node[:100]} is not a node of this job (any more)"
            )

    def _fail_data(self, node: str, error: LedgerError) -> None:
        self._master.do(ReportFailure(node=node, kind="data", message=str(error), traceback="", lease_id=0))

    async def Watch(self, request: pb.WatchRequest, context: Context) -> AsyncIterator[pb.Directive]:
        sent = None
        with (
            self._master.supervisor.directive_stream(request.node),
            self._board.open_stream(request.node) as stream,
        ):
            while True:
                directive = stream.directive()
                if directive != sent:
                    sent = directive
                    yield _dated(directive, self._master.journal_end)
                    if directive.finished:
                        return
                    # Sending gave way to other calls: look again before waiting, or their change would be missed.
                    continue
                await stream.wait(_HOLD_SECONDS)

    async def Remark(self, request: pb.RemarkRequest, context: Context) -> pb.RemarkReply:
        await self._check_member(request.node, context)
        # Every worker says it.
        if not set(request.remarks) <= set(self._master.state.remarks):
            self._master.do(AddRemarks(remarks=list(request.remarks)))
        return pb.RemarkReply()

    async def Fail(self, request: pb.FailRequest, context: Context) -> pb.FailReply:
        await self._check_member(request.node, context)
        log.error("%s failed: %s\n%s", request.node, request.message, request.traceback)
        self._master.do(
            ReportFailure(
                node=request.node,
                kind=request.kind,
                message=request.message,
                traceback=request.traceback,
                lease_id=request.lease_id,
            )
        )
        return pb.FailReply()

    # -- data ------------------------------------------------------------------------------------------------

    async def Announce(self, request: pb.AnnounceRequest, context: Context) -> pb.AnnounceReply:
        await self._check_member(request.node, context)
        if self._master.state.sizes.get(request.dataset) == request.size:
            return pb.AnnounceReply()
        try:
            self._master.do(AnnounceDataset(dataset=request.dataset, size=request.size))
        except LedgerError as error:
            self._fail_data(request.node, error)
        return pb.AnnounceReply()

    async def Lease(self, request: pb.LeaseRequest, context: Context) -> pb.LeaseReply:
        master, state = self._master, self._master.state
        await master.hear(request.node)
        while True:
            if state.work.finished(request.dataset):
                return pb.LeaseReply(finished=True)
            if request.generation != state.generation:
                return pb.LeaseReply()
            leases = []
            if state.work.may_lease(request.dataset, request.node, request.request_id):
                leases = master.do(
                    LeaseShards(
                        dataset=request.dataset,
                        worker=request.node,
                        count=max(1, request.max_shards),
                        request_id=request.request_id,
                    )
                )
            if leases:
                master.detector.lease_granted(request.node, master.clock())
                return pb.LeaseReply(
                    shards=[
                        pb.Shard(
                            lease_id=x.lease_id,
                            epoch=x.epoch,
                            start=x.start,
                            end=x.end,
                            applied_buckets=bytes.fromhex(x.applied),
                        )
                        for x in leases
                    ]
                )
            if not request.wait:
                return pb.LeaseReply()
            if state.work.propose_split(request.dataset, request.node):
                master.wake()
            await master.work.wait(_HOLD_SECONDS)
            if context.cancelled() or context.done():
                return pb.LeaseReply()

    async def Report(self, request: pb.ReportRequest, context: Context) -> pb.ReportReply:
        await self._check_member(request.node, context)
        await self._master.hear(request.node)
        state = self._master.state
        if request.generation != state.generation:
            return pb.ReportReply(lost_leases=[p.lease_id for p in request.progress])
        dataset = TRAINING if TRAINING in state.sizes else "prediction"
        before = state.ledger.samples_done(dataset) if dataset in state.sizes else 0
        try:
            lost = self._master.do(
                ReportProgress(
                    worker=request.node,
                    report_id=request.report_id,
                    progress=[(p.lease_id, p.position, p.batches, p.atomic) for p in request.progress],
                    bad=_unreadable(request.bad_records),
                    loss_sum=request.loss_sum,
                    loss_batches=request.loss_batches,
                    stop_training=request.stop_training,
                )
            )
        except LedgerError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        done = state.ledger.samples_done(dataset) - before if dataset in state.sizes else 0
        loss = request.loss_sum / request.loss_batches if request.loss_batches else None
        self._master.detector.progress_reported(
            request.node, self._master.clock(), batch_seconds=request.batch_seconds
        )
        self._master.note_progress(max(0, done), loss, worker=request.node)
        self._master.note_skipped(request.skipped_batches)
        self._master.note_scalars(dict(request.scalars))
        return pb.ReportReply(lost_leases=lost)

    async def Truncate(self, request: pb.TruncateRequest, context: Context) -> pb.TruncateReply:
        await self._check_member(request.node, context)
        await self._master.hear(request.node)
        try:
            self._master.do(TruncateLease(worker=request.node, lease_id=request.lease_id, end=request.end))
        except LostLease:
            log.debug("Ignoring %s, which gave up a part of a shard that it does not hold", request.node)
        return pb.TruncateReply()

    # -- barriers and evaluations -------------------------------------------------------------------------------

    async def ReachBarrier(self, request: pb.ReachBarrierRequest, context: Context) -> pb.ReachBarrierReply:
        await self._check_member(request.node, context)
        await self._master.hear(request.node)
        if request.error:
            self._master.do(FailCheckpoint(barrier=request.barrier, message=request.error))
            return pb.ReachBarrierReply()
        files = [SavedFile(name=f.name, bytes=f.bytes, crc32=f.crc32) for f in request.files]
        self._master.do(ReachBarrier(worker=request.node, barrier=request.barrier, files=files))
        return pb.ReachBarrierReply()

    async def ReportEvaluation(
        self, request: pb.ReportEvaluationRequest, context: Context
    ) -> pb.ReportEvaluationReply:
        await self._check_member(request.node, context)
        await self._master.hear(request.node)
        try:
            self._master.do(
                ReportEvaluation(
                    worker=request.node,
                    evaluation=request.evaluation,
                    lease_id=request.lease_id,
                    states=evaluation.journaled(request.states),
                    bad=_unreadable(request.bad_records),
                )
            )
        except LedgerError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        self._master.detector.progress_reported(request.node, self._master.clock())
        return pb.ReportEvaluationReply()

    async def FinishEvaluation(
        self, request: pb.FinishEvaluationRequest, context: Context
    ) -> pb.FinishEvaluationReply:
        await self._check_member(request.node, context)
        await self._master.hear(request.node)
        state = self._master.state
        current = state.evaluation
        if request.claim:
            yours = self._master.do(ClaimEvaluation(worker=request.node, evaluation=request.evaluation))
            states = evaluation.to_wire(current.states) if yours and current is not None else []
            return pb.FinishEvaluationReply(yours=yours, states=states)
        step = current.step if current is not None else 0
        metrics = dict(request.metrics)
        if self._master.do(FinishEvaluation(evaluation=request.evaluation, metrics=metrics)):
            self._master.note_evaluation(step, metrics)
            await self._master.checkpointer.release(request.evaluation)
        return pb.FinishEvaluationReply()

    async def FinishTask(self, request: pb.FinishTaskRequest, context: Context) -> pb.FinishTaskReply:
        await self._check_member(request.node, context)
        await self._master.hear(request.node)
        self._master.do(FinishTask(task=request.task, result=request.result, error=request.error))
        return pb.FinishTaskReply()

    async def History(self, request: pb.HistoryRequest, context: Context) -> pb.HistoryReply:
        return pb.HistoryReply(epochs=epoch_ends(self._master.state.epochs_ended))

    # -- people ----------------------------------------------------------------------------------------------

    async def Status(self, request: pb.StatusRequest, context: Context) -> pb.StatusReply:
        return pb.StatusReply(json=job_status(self._master, brief=request.brief).to_text())

    async def Scale(self, request: pb.ScaleRequest, context: Context) -> pb.ScaleReply:
        counts = {"worker": "num_workers", "ps": "num_ps"}
        nodes = {role: getattr(request, name) for role, name in counts.items() if request.HasField(name)}
        try:
            if not nodes and not request.victims:
                raise CannotScale("Say how many: --num_workers, --num_ps, or both.")
            result = scale(self._master, nodes, victims=request.victims)
        except CannotScale as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return pb.ScaleReply(message=result.message, ignored_victims=result.ignored_victims)

    async def Stop(self, request: pb.StopRequest, context: Context) -> pb.StopReply:
        log.info("Stopping on request: %s", request.reason)
        self._master.do(StopJob(reason=request.reason or "asked to"))
        return pb.StopReply()


def _unreadable(ranges: Iterable[pb.BadRange]) -> list[UnreadableSamples]:
    return [
        UnreadableSamples(dataset=b.dataset, start=b.start, end=b.end, where=b.where, reason=b.reason)
        for b in ranges
    ]


def _dated(directive: pb.Directive, journal: int) -> pb.Directive:
    """A copy: where the journal ends is no news by itself."""
    dated = pb.Directive()
    dated.CopyFrom(directive)
    dated.journal = journal
    return dated
