"""The data-shard calls of `elasticai_api`, the public package's and ours, served from the ledger.

The public client cannot wait: any reply without a shard ends its loop. So the call of a worker without a shard is held
until there is one, or until the worker may exit (`ProgramData.may_end`). Its reports do not name their sender: the
holder of the shard counts. And it treats every failed call as an error, and repeats it for minutes; so invalid calls
get a valid reply, and a line in the log.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from typing import Any

import grpc
import grpc.aio
from google.protobuf import empty_pb2

from elasticai_api.proto import elasticai_api_pb2 as pb
from elasticai_api.proto import progress_pb2 as progress_pb
from elasticai_api.proto.elasticai_api_pb2_grpc import MasterServicer
from elasticai_api.proto.progress_pb2_grpc import ProgressServicer
from elasticdl.master.commands.job import AddRemarks
from elasticdl.master.commands.nodes import ReportFailure
from elasticdl.master.commands.programs import (
    FailShard,
    OpenDataset,
    ResetDataset,
    RestoreShards,
    ReturnLeases,
)
from elasticdl.master.commands.recovery import ReclaimShards, ReportedShard
from elasticdl.master.commands.shards import LeaseShards, ReportProgress, ShardProgress
from elasticdl.master.ledger.dataset_announcement import DatasetAnnouncement
from elasticdl.master.ledger.ledger import Lease, LedgerError
from elasticdl.master.master import Master
from elasticdl.master.services.shard_fetches import ShardFetches

log = logging.getLogger("elasticdl.master")

_HOLD_SECONDS = 20.0
_REQUEST_HEADER = "elasticai-request"
SEPARATE_MODELS = (
    "Several workers train with shards, which combines no models: each has a model of its own, unless the program "
    "itself exchanges gradients. For one model: all-reduce (docs/allreduce.md), or parameter servers (--num_ps)."
)
RESTORED = (
    "A program without the job's token has restored a checkpoint of its shards: samples that are done according to it "
    "count as done."
)
NON_FINITE_LOSS = "The program has reported losses that are not finite (NaN or infinity)."
_REMAINDERS = ("", "fill", "drop")
# As in the public package: what a data set is called if the program gives it no name.
_UNNAMED = {pb.EVALUATION: "_EDL_DEFAULT_EVALUATION_DATA"}
_UNNAMED_TRAINING = "_EDL_DEFAULT_TRAINING_DATA"
# The reply by which the public package continues to train.
_TRAINING_GOES_ON = 1

# The maximal number of data sets without a token: each is in the journal.
_MOST_DATASETS, _LONGEST_NAME = 100, 1000

Context = grpc.aio.ServicerContext[Any, Any]
_EMPTY = empty_pb2.Empty()


class ShardService(MasterServicer, ProgressServicer):
    def __init__(self, master: Master, fetches: ShardFetches) -> None:
        self._master = master
        self._fetches = fetches
        # Workers that are held with a call for a shard.
        self.waiting: Counter[str] = Counter()
        self._training_workers: set[str] = set()

    async def _admit(self, context: Context) -> None:
        """Called before anything that changes what is trained: a program of the job wants it."""
        self._fetches.has_token = True

    # -- announcing ------------------------------------------------------------------------------------------

    async def report_dataset_shard_params(
        self, request: pb.ReportDatasetShardParamsRequest, context: Context
    ) -> empty_pb2.Empty:
        await self._admit(context)
        name = request.dataset_name or _UNNAMED.get(request.task_type, _UNNAMED_TRAINING)
        announcement = DatasetAnnouncement(
            name=name,
            size=request.dataset_size,
            batch_size=request.batch_size,
            epochs=request.num_epochs,
            minibatches_per_shard=request.num_minibatches_per_shard or self._master.plan.shard_batches,
            shuffle_shards=request.shuffle_shards or request.shuffle,
            shuffle_records=request.shuffle,
            task_type=request.task_type or pb.TRAINING,
            drop_remainder=request.remainder == "drop",
        )
        if request.remainder not in _REMAINDERS:
            await self._refuse(
                context, f"Data set {name}: the remainder can be 'fill' or 'drop', not {request.remainder!r}."
            )
        known = self._master.state.data.announced.get(name)
        if known == announcement:
            return _EMPTY
        if known is not None and known.size == announcement.size:
            log.warning("Ignoring another announcement of %s; the first one counts: %s", name, known)
            return _EMPTY
        try:
            self._master.do(OpenDataset(announcement=announcement))
        except LedgerError as error:
            await self._refuse(context, str(error))
        log.info("Data set %s: %s", name, announcement)
        return _EMPTY

    async def _refuse(self, context: Context, message: str) -> None:
        """Fails the job for invalid data, and refuses the call."""
        self._master.do(ReportFailure(node="", kind="data", message=message, traceback="", lease_id=0))
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)

    # -- shards ----------------------------------------------------------------------------------------------

    async def get_task(self, request: pb.GetTaskRequest, context: Context) -> pb.Task:
        name = request.dataset_name or _UNNAMED.get(request.task_type, _UNNAMED_TRAINING)
        return await self._task(name, f"worker-{request.worker_id}", context)

    async def get_dataset_task(self, request: pb.GetDatasetTaskRequest, context: Context) -> pb.Task:
        worker = f"{request.worker_type or 'worker'}-{request.worker_id}"
        return await self._task(request.dataset_name or _UNNAMED_TRAINING, worker, context)

    async def _task(self, dataset: str, worker: str, context: Context) -> pb.Task:
        lease = next(iter(await self._leases(dataset, worker, 1, context)), None)
        return pb.Task(type=pb.NONE) if lease is None else self._shard(lease)

    async def Fetch(self, request: progress_pb.FetchRequest, context: Context) -> progress_pb.FetchReply:
        worker = f"{request.worker_type or 'worker'}-{request.worker_id}"
        await self._ask_to_tell(worker, context)
        dataset = request.dataset_name or _UNNAMED_TRAINING
        leases = await self._leases(dataset, worker, request.count, context)
        return progress_pb.FetchReply(
            shards=[
                progress_pb.FetchedShard(task=self._shard(lease), epoch=lease.epoch + 1) for lease in leases
            ]
        )

    async def _leases(self, dataset: str, worker: str, count: int, context: Context) -> list[Lease]:
        """Waited for as long as there may still be some; none when there will not."""
        master, state = self._master, self._master.state
        if dataset not in state.data.announced:
            known = ", ".join(state.data.announced) or "none"
            await context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"The data set {dataset} is not announced (there are: {known}).",
            )
        self._note_call(worker)
        given = request_number(context)
        while True:
            await self._admit(context)
            leases = self._lease(dataset, worker, count, given or state.ledger.next_lease)
            self._note_fetched([lease.lease_id for lease in leases], context)
            if leases or (state.data.may_end(dataset, worker) and not state.reclaim.is_collecting):
                return leases
            self.waiting[worker] += 1
            try:
                await master.work.wait(_HOLD_SECONDS)
            finally:
                self.waiting[worker] -= 1
            if context.cancelled() or context.done():
                return []

    def _note_call(self, worker: str) -> None:
        """Notes a call of a node of the job; other names, which may be long, are not kept."""
        if worker in self._master.state.roster.nodes:
            self._master.detector.program_reported(worker, self._master.clock())

    def _lease(self, dataset: str, worker: str, count: int, request_id: int) -> list[Lease]:
        state = self._master.state
        try:
            if not state.work.may_lease(dataset, worker, request_id):
                return []
            share = min(count, state.data.share(dataset)) if count > 1 else 1
            leases: list[Lease] = self._master.do(
                LeaseShards(dataset=dataset, worker=worker, count=share, request_id=request_id)
            )
        except LedgerError as error:
            # A call that came too late: the worker has asked again meanwhile.
            log.warning("%s", error)
            return []
        if leases:
            self._master.detector.lease_granted(worker, self._master.clock())
            self._note_separate_models(dataset, worker)
        return leases

    def _note_fetched(self, leases: list[int], context: Context) -> None:
        """Notes who has fetched shards. With the token, a report names its sender."""

    def _note_separate_models(self, dataset: str, worker: str) -> None:
        """Once, when a second worker gets training data: shards divide data, and combine no models."""
        state = self._master.state
        if state.data.announced[dataset].task_type != pb.TRAINING or self._master.spec.nodes.num_ps:
            return
        self._training_workers.add(worker)
        if len(self._training_workers) > 1 and SEPARATE_MODELS not in state.remarks:
            self._master.do(AddRemarks(remarks=[SEPARATE_MODELS]))

    def _shard(self, lease: Lease) -> pb.Task:
        data = self._master.state.data
        return pb.Task(
            task_id=lease.lease_id,
            type=data.announced[lease.dataset].task_type,  # type: ignore[arg-type]
            shard=pb.Shard(name=lease.dataset, start=lease.start, end=lease.end, indices=data.indices(lease)),
        )

    # -- what was forgotten ----------------------------------------------------------------------------------

    async def _ask_to_tell(self, worker: str, context: Context) -> None:
        """Asks a worker for its memory of shards, before its reports can be understood."""
        await self._master.list_nodes()
        if self._master.state.reclaim.waits_for(worker) and not self._master.state.outcome:
            await context.abort(
                grpc.StatusCode.ABORTED,
                f"The master has lost its journal: {worker} is to tell what it remembers.",
            )

    async def Tell(self, request: progress_pb.TellRequest, context: Context) -> progress_pb.ProgressReply:
        await self._admit(context)
        worker = f"{request.worker_type or 'worker'}-{request.worker_id}"
        state = self._master.state
        await self._master.list_nodes()
        lost = self._master.do(
            ReclaimShards(
                worker=worker,
                generation=state.generation,
                seen_generation=state.generation,
                barrier=0,
                sizes={},
                epochs_ended=[],
                shards=[
                    ReportedShard(
                        lease_id=s.task_id,
                        dataset=s.dataset_name,
                        epoch=s.epoch - 1,
                        start=s.start,
                        position=s.position,
                        end=s.end,
                        batches=s.batches,
                        held=s.held,
                    )
                    for s in request.shards
                ],
            )
        )
        log.info("%s has reported %d shards; %d of them are lost.", worker, len(request.shards), len(lost))
        return progress_pb.ProgressReply(lost=lost)

    # -- reports ---------------------------------------------------------------------------------------------

    async def report_task_result(
        self, request: pb.ReportTaskResultRequest, context: Context
    ) -> empty_pb2.Empty:
        await self._admit(context)
        self._result(request.task_id, request.err_message)
        return _EMPTY

    async def report_dataset_task_result(
        self, request: pb.ReportDatasetTaskResultRequest, context: Context
    ) -> empty_pb2.Empty:
        await self._admit(context)
        self._result(request.task_id, request.err_message)
        return _EMPTY

    def _result(self, task: int, error: str) -> None:
        state = self._master.state
        lease = state.ledger.lease_of(task)
        if lease is None:
            given = 0 < task < state.ledger.next_lease
            log.warning(
                "Shard %d was reported and %s.",
                task,
                "is not leased any more" if given else "never leased",
            )
            return
        if error:
            log.warning("%s failed on shard %d: %s", lease.worker, task, error)
            self._master.do(FailShard(lease_id=task, message=error))
            return
        batch = state.ledger.spec(lease.dataset).batch_size
        batches = -(-(lease.end - lease.start) // batch)
        self._progress(lease.worker, [(task, lease.end, batches, False)], [lease], None)

    async def Report(
        self, request: progress_pb.ProgressRequest, context: Context
    ) -> progress_pb.ProgressReply:
        await self._admit(context)
        worker = f"{request.worker_type or 'worker'}-{request.worker_id}"
        await self._ask_to_tell(worker, context)
        positions = []
        before = []
        lost = []
        for shard in request.shards:
            lease = self._master.state.ledger.lease_of(shard.task_id)
            if lease is None or lease.worker != worker:
                lost.append(shard.task_id)
            elif not lease.start <= shard.position <= lease.end:
                await context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    f"Position {shard.position} lies outside of shard {shard.task_id}, "
                    f"samples [{lease.start}, {lease.end}) of {lease.dataset}.",
                )
            else:
                atomic = self._master.state.data.announced[lease.dataset].shuffle_records
                positions.append((shard.task_id, shard.position, shard.batches, atomic))
                before.append(lease)
        loss = request.loss if request.HasField("loss") else None
        if loss is not None and not math.isfinite(loss):
            self._note_non_finite_loss(worker, request.global_step)
            loss = None
        self._master.global_step = max(self._master.global_step, request.global_step)
        if positions or loss is not None:
            lost += self._progress(worker, positions, before, loss)
        if request.given_back:
            self._master.do(ReturnLeases(worker=worker, lease_ids=list(request.given_back)))
        self._note_call(worker)
        return progress_pb.ProgressReply(lost=lost)

    def _note_non_finite_loss(self, worker: str, step: int) -> None:
        """Once: the loop is the program's, and goes on if the program wants it to."""
        if not any(remark.startswith(NON_FINITE_LOSS) for remark in self._master.state.remarks):
            remark = f"{NON_FINITE_LOSS} The first: step {step:,} of {worker}."
            self._master.do(AddRemarks(remarks=[remark]))

    def _progress(
        self, worker: str, positions: list[ShardProgress], before: list[Lease], loss: float | None
    ) -> list[int]:
        """`before`: the leases of these positions, as they are by now."""
        lost: list[int] = self._master.do(
            ReportProgress(
                worker=worker,
                report_id=0,
                progress=positions,
                bad=[],
                loss_sum=0.0,
                loss_batches=0,
                stop_training=False,
            )
        )
        samples = batches = 0
        for lease, (task, position, count, _) in zip(before, positions, strict=True):
            if task not in lost:
                samples += max(0, position - lease.position)
                batches += max(0, count - lease.batches)
        self._master.detector.progress_reported(worker, self._master.clock(), batches=batches)
        self._master.note_progress(samples, loss, worker=worker)
        return lost

    # -- whole data sets -------------------------------------------------------------------------------------

    async def reset_dataset(self, request: pb.ResetDatasetRequest, context: Context) -> empty_pb2.Empty:
        await self._admit(context)
        try:
            self._master.do(ResetDataset(dataset=request.dataset_name or _UNNAMED_TRAINING))
        except LedgerError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return _EMPTY

    async def get_dataset_epoch(
        self, request: pb.GetDatasetEpochRequest, context: Context
    ) -> pb.GetDatasetEpochResponse:
        name = request.dataset_name or _UNNAMED_TRAINING
        known = name in self._master.state.data.announced
        # Counted from 1, as the public package's masters do; 0 before the first lease.
        return pb.GetDatasetEpochResponse(epoch=self._master.state.ledger.epochs_begun(name) if known else 0)

    async def get_shard_checkpoint(
        self, request: pb.GetShardCheckpointRequest, context: Context
    ) -> pb.ShardCheckpoint:
        try:
            content = self._master.state.data.checkpoint(request.dataset_name or _UNNAMED_TRAINING)
        except LedgerError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        return pb.ShardCheckpoint(content=content)

    async def report_shard_checkpoint(
        self, request: pb.ShardCheckpoint, context: Context
    ) -> pb.ReportShardCheckpointResponse:
        await self._admit(context)
        try:
            self._master.do(RestoreShards(content=request.content))
        except (LedgerError, ValueError, KeyError, TypeError) as error:
            log.warning("A checkpoint of shards cannot be restored: %s", error)
            return pb.ReportShardCheckpointResponse(success=False)
        return pb.ReportShardCheckpointResponse(success=True)

    # -- what the public package tells beside ----------------------------------------------------------------

    async def report_used_resource(
        self, request: pb.ReportUsedResourceRequest, context: Context
    ) -> empty_pb2.Empty:
        return _EMPTY

    async def report_model_metric(self, request: pb.ModelMetric, context: Context) -> empty_pb2.Empty:
        return _EMPTY

    async def report_global_step(self, request: pb.GlobalStepRecord, context: Context) -> empty_pb2.Empty:
        return _EMPTY

    async def query_training_status(
        self, request: empty_pb2.Empty, context: Context
    ) -> pb.QueryTrainingStatusResponse:
        return pb.QueryTrainingStatusResponse(status=_TRAINING_GOES_ON)


class PublicShardService(ShardService):
    """The same calls without a token. A call says nothing of who makes it: it may be a stranger's.

    `ShardFetches` decides about reports. Nothing is changed here for programs that have the token.
    """

    async def _admit(self, context: Context) -> None:
        if self._fetches.has_token:
            message = "The programs of this job use its token: a call without it is rejected."
            log.warning("%s (%s)", message, context.peer())
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, message)

    async def report_dataset_shard_params(
        self, request: pb.ReportDatasetShardParamsRequest, context: Context
    ) -> empty_pb2.Empty:
        known = self._master.state.data.announced
        if request.dataset_name not in known and (
            len(known) >= _MOST_DATASETS or len(request.dataset_name) > _LONGEST_NAME
        ):
            await self._refuse(
                context,
                f"Without a token: at most {_MOST_DATASETS} data sets, with names of {_LONGEST_NAME} characters.",
            )
        return await super().report_dataset_shard_params(request, context)

    async def _task(self, dataset: str, worker: str, context: Context) -> pb.Task:
        await self._admit(context)
        # Before the wait: an older call of the same connection may be answered first.
        if worker in self._master.state.roster.nodes:
            self._fetches.note_call(worker, context.peer())
        return await super()._task(dataset, worker, context)

    def _note_fetched(self, leases: list[int], context: Context) -> None:
        self._fetches.note_fetched(leases, context.peer())

    async def report_task_result(
        self, request: pb.ReportTaskResultRequest, context: Context
    ) -> empty_pb2.Empty:
        await self._check_reporter(request.task_id, context)
        return await super().report_task_result(request, context)

    async def report_dataset_task_result(
        self, request: pb.ReportDatasetTaskResultRequest, context: Context
    ) -> empty_pb2.Empty:
        await self._check_reporter(request.task_id, context)
        return await super().report_dataset_task_result(request, context)

    async def _check_reporter(self, task: int, context: Context) -> None:
        await self._admit(context)
        lease = self._master.state.ledger.lease_of(task)
        if lease is None or self._fetches.may_report(lease, context.peer()):
            return
        message = f"Shard {task} was fetched by another worker; a report of {context.peer()} is rejected."
        log.warning("%s", message)
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, message)

    async def report_shard_checkpoint(
        self, request: pb.ShardCheckpoint, context: Context
    ) -> pb.ReportShardCheckpointResponse:
        """Counts samples that a checkpoint lists as done without training them here. The audit reports it, since the
        caller may be a stranger.
        """
        reply = await super().report_shard_checkpoint(request, context)
        if reply.success:
            self._master.do(AddRemarks(remarks=[RESTORED]))
        return reply

    async def _refuse(self, context: Context, message: str) -> None:
        """A program of the job ends with this error, once its client has asked often enough, and that counts."""
        log.warning("An announcement at the port without a token was refused: %s", message)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)


def request_number(context: Context) -> int:
    """The number that our own package gives to a call for a shard; 0 if it is not ours."""
    for key, value in context.invocation_metadata() or ():
        if key == _REQUEST_HEADER and str(value).isdigit():
            return int(value)
    return 0
