"""The connection to the master of the job.

A master may be killed and come back, at the same address, at any moment. Calls then wait for it and are made again,
with growing pauses; all of them may safely be repeated. Shards are asked for by number: if an answer got lost, the
same number brings the same shard again. Only after a long time (an hour, or what ELASTICAI_MASTER_PATIENCE says) is a
master given up.

Inside a job the process has the address of the master (MASTER_ADDR) and the job's token (in the file
ELASTICDL_TOKEN_FILE), which every call carries. Without a token there may still be the port for programs with the
public package (DLROVER_MASTER_ADDR): shards are leased there the same way, without reports of progress inside them.
Without either the program is alone (alone.py).
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

import grpc

from elasticai_api.common.alone import AloneMaster
from elasticai_api.common.connection import not_trusted, open_channel
from elasticai_api.common.constants import PodEnv
from elasticai_api.common.master import DatasetParams, FetchedShard, Master, ShardProgress
from elasticai_api.common.shard_memory import ShardMemory
from elasticai_api.errors import MasterError, ShardError, TokenError
from elasticai_api.proto import elasticai_api_pb2 as pb
from elasticai_api.proto import progress_pb2
from elasticai_api.proto.elasticai_api_pb2_grpc import MasterStub
from elasticai_api.proto.progress_pb2_grpc import ProgressStub

log = logging.getLogger("elasticai_api")

_Reply = TypeVar("_Reply")

# Long enough to repair a cluster, short enough that a forgotten process ends by itself.
DEFAULT_PATIENCE_SECONDS = 3600.0
# A call other than for a shard is answered in milliseconds; if not, its connection is lost.
_CALL_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 2.0
_MESSAGE_BYTES = 256 << 20
_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    # Nodes talk to nodes: a proxy set up for the internet must not get in between.
    ("grpc.enable_http_proxy", 0),
    # A machine that vanished closes no connection; a held call would wait for it forever.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # A master that was killed is back within a second or two.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # One part of a program closing its channel is to disturb no other.
    ("grpc.use_local_subchannel_pool", 1),
    # No ping for each message, to find out how much of a large one may be under way at once: these are small.
    ("grpc.http2.bdp_probe", 0),
)
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
_NOT_HELD = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.FAILED_PRECONDITION)
_OUR_FAULT = (*_NOT_HELD, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE)


class MasterClient(Master):
    """The master of a job, from the side of one of its workers. May be used by several threads."""

    remote = True

    def __init__(
        self,
        master_addr: str,
        worker_id: int = 0,
        worker_type: str = "worker",
        *,
        token: str | None = None,
        patience: float | None = None,
    ) -> None:
        """Connects when first used. `patience`: seconds to wait for a master that is away."""
        self.address = master_addr
        self.worker_id = worker_id
        self.worker_type = worker_type
        self._patience = _patience() if patience is None else patience
        self._metadata = () if token is None else (("authorization", f"Bearer {token}"),)
        # Without a token only the calls of the public package are answered.
        self._partial = token is not None
        # A job keeps its token for as long as its ledger.
        self.ledger_id = "" if token is None else hashlib.sha256(token.encode()).hexdigest()[:32]
        self._memory = ShardMemory()
        self._announced: dict[str, DatasetParams] = {}
        # Several threads may find at the same time that the master lost its journal; one of them recovers it.
        self._telling = threading.Lock()
        # Shards that the master rejected during the recovery: returned with the answer to the next report.
        self._lost: list[int] = []
        # Shards that the recovery reported as done: the master does not know them in a report that was in flight.
        self._recovered_done: set[int] = set()
        # Not from 1: another process of the same worker, before this one, must not have used the number.
        self._numbers = itertools.count(time.time_ns() // 1000)
        self._closed = threading.Event()
        # Processes forked off this one must leave its connection alone.
        self._process = os.getpid()
        self._channel = (
            grpc.insecure_channel(master_addr, options=_OPTIONS)
            if token is None
            else open_channel(master_addr, _OPTIONS)
        )
        self._shards = MasterStub(self._channel)  # type: ignore[no-untyped-call]
        self._progress = ProgressStub(self._channel)  # type: ignore[no-untyped-call]

    # -- what a master does ----------------------------------------------------------------------------------

    def announce(self, params: DatasetParams) -> None:
        self._announced[params.name] = params
        self._announce(params)

    def _announce(self, params: DatasetParams) -> None:
        request = pb.ReportDatasetShardParamsRequest(
            batch_size=params.batch_size,
            num_epochs=params.num_epochs,
            dataset_size=params.size,
            shuffle=params.shuffle,
            shuffle_shards=params.shuffle_shards,
            num_minibatches_per_shard=params.num_minibatches_per_shard,
            dataset_name=params.name,
            task_type=params.task_type,  # type: ignore[arg-type]
            remainder=params.remainder or "",
        )
        self._call(self._shards.report_dataset_shard_params, request)

    def fetch(self, dataset: str, count: int) -> list[FetchedShard]:
        if not self._partial:
            task = self._next_task(dataset)
            return [] if task.type == pb.NONE else [FetchedShard(task=task)]
        request = progress_pb2.FetchRequest(
            worker_id=self.worker_id, worker_type=self.worker_type, dataset_name=dataset, count=count
        )
        # The master holds the call until there is a shard, so it has no deadline.
        reply: progress_pb2.FetchReply = self._call(
            self._progress.Fetch, request, metadata=self._number(), seconds=None
        )
        shards = [FetchedShard(task=shard.task, epoch=shard.epoch) for shard in reply.shards]
        for shard in shards:
            given = shard.task.shard
            self._memory.add(
                shard.task.task_id, dataset=given.name, epoch=shard.epoch, start=given.start, end=given.end
            )
        self._memory.expire()
        return shards

    def _next_task(self, dataset: str) -> pb.Task:
        request = pb.GetDatasetTaskRequest(
            worker_id=self.worker_id, dataset_name=dataset, worker_type=self.worker_type
        )
        pause = _FIRST_PAUSE_SECONDS
        while True:
            task: pb.Task = self._call(
                self._shards.get_dataset_task, request, metadata=self._number(), seconds=None
            )
            if task.type != pb.WAIT:
                return task
            self._pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def progress(
        self,
        dataset: str,
        shards: Sequence[ShardProgress],
        *,
        global_step: int | None = None,
        loss: float | None = None,
        given_back: Sequence[int] = (),
    ) -> list[int]:
        if not self._partial:
            return self._whole_shards(dataset, shards, global_step)
        request = progress_pb2.ProgressRequest(
            worker_id=self.worker_id,
            worker_type=self.worker_type,
            dataset_name=dataset,
            shards=[
                progress_pb2.ShardProgress(task_id=s.task_id, position=s.position, batches=s.batches)
                for s in shards
            ],
            global_step=global_step or 0,
            loss=loss,
            given_back=given_back,
        )
        for progress in shards:
            self._memory.advance(progress.task_id, position=progress.position, batches=progress.batches)
        self._memory.end([progress.task_id for progress in shards if progress.ended])
        self._memory.end(given_back)
        reply: progress_pb2.ProgressReply = self._call(self._progress.Report, request)
        with self._telling:
            lost = [*(task_id for task_id in reply.lost if task_id not in self._recovered_done), *self._lost]
            self._lost = []
        self._memory.drop(lost)
        return lost

    def _number(self) -> tuple[tuple[str, str], ...]:
        return (("elasticai-request", str(next(self._numbers))),)

    def _whole_shards(
        self, dataset: str, shards: Sequence[ShardProgress], global_step: int | None
    ) -> list[int]:
        if global_step is not None:
            record = pb.GlobalStepRecord(timestamp=int(time.time()), global_step=global_step)
            self._call(self._shards.report_global_step, record)
        return [s.task_id for s in shards if s.ended and not self._report_result(dataset, s.task_id, "")]

    def fail(self, dataset: str, task_id: int, message: str) -> None:
        self._report_result(dataset, task_id, message)

    def _report_result(self, dataset: str, task_id: int, message: str) -> bool:
        """False if the shard is not this worker's any more."""
        if message:
            self._memory.end([task_id])
        request = pb.ReportDatasetTaskResultRequest(
            task_id=task_id, err_message=message, dataset_name=dataset
        )
        try:
            self._call(self._shards.report_dataset_task_result, request)
        except _NotHeld:
            return False
        return True

    def epoch(self, dataset: str) -> int:
        reply: pb.GetDatasetEpochResponse = self._call(
            self._shards.get_dataset_epoch, pb.GetDatasetEpochRequest(dataset_name=dataset)
        )
        return reply.epoch

    def checkpoint(self, dataset: str) -> str:
        reply: pb.ShardCheckpoint = self._call(
            self._shards.get_shard_checkpoint, pb.GetShardCheckpointRequest(dataset_name=dataset)
        )
        return reply.content

    def restore(self, content: str) -> bool:
        reply: pb.ReportShardCheckpointResponse = self._call(
            self._shards.report_shard_checkpoint, pb.ShardCheckpoint(content=content)
        )
        for dataset in list(self._announced) if reply.success else ():
            # The master's own account makes the other workers drop theirs.
            self._memory.drop_dataset(dataset)
        return reply.success

    def reset(self, dataset: str) -> None:
        self._call(self._shards.reset_dataset, pb.ResetDatasetRequest(dataset_name=dataset))
        self._memory.drop_dataset(dataset)

    def close(self) -> None:
        self._closed.set()
        if os.getpid() == self._process:
            self._channel.close()

    # -- calls that outlast a restart of the master ----------------------------------------------------------

    def _call(
        self,
        method: Callable[..., _Reply],
        request: object,
        *,
        metadata: tuple[tuple[str, str], ...] = (),
        seconds: float | None = _CALL_SECONDS,
    ) -> _Reply:
        if os.getpid() != self._process:
            raise MasterError(
                "The connection to the master belongs to the process that opened it. "
                "In other processes use a service of their own, or RecordIndexService."
            )
        away_since: float | None = None
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return method(request, timeout=seconds, metadata=(*self._metadata, *metadata))
            except grpc.RpcError as error:
                if self._closed.is_set():
                    raise MasterError("The connection to the master has been closed.") from None
                if error.code() is grpc.StatusCode.ABORTED:
                    self._tell()
                    continue
                if error.code() not in _AWAY:
                    self._raise(error)
                if not_trusted(error):
                    raise MasterError(
                        f"What listens at {self.address} is not the master of this job: it has no certificate of "
                        f"the authority in the file that {PodEnv.CA_FILE} names ({_words(error)})."
                    ) from None
                now = time.monotonic()
                if away_since is None:
                    away_since = now
                    log.warning(
                        "Waiting for the master at %s, which does not answer: %s", self.address, _words(error)
                    )
                if now - away_since > self._patience:
                    raise MasterError(
                        f"The master at {self.address} has been away for {self._patience:g} seconds "
                        f"({_words(error)}). How long to wait is set by {PodEnv.PATIENCE}."
                    ) from None
            except ValueError as error:
                # gRPC's error for a closed channel.
                raise MasterError("The connection to the master has been closed.") from error
            self._pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _tell(self) -> None:
        """Sends this worker's memory to a master that has lost its journal."""
        with self._telling:
            log.warning("Reporting shards to the master at %s, which has lost its journal", self.address)
            for params in list(self._announced.values()):
                self._announce(params)
            remembered = self._memory.shards()
            self._recovered_done = {shard.shard_id for shard in remembered if not shard.is_held}
            request = progress_pb2.TellRequest(
                worker_id=self.worker_id,
                worker_type=self.worker_type,
                shards=[
                    progress_pb2.ToldShard(
                        task_id=shard.shard_id,
                        dataset_name=shard.dataset,
                        epoch=shard.epoch,
                        start=shard.start,
                        position=shard.position,
                        end=shard.end,
                        batches=shard.batches,
                        held=shard.is_held,
                    )
                    for shard in remembered
                ],
            )
            reply: progress_pb2.ProgressReply = self._call(self._progress.Tell, request)
            self._lost += reply.lost

    def _pause(self, seconds: float) -> None:
        if self._closed.wait(seconds):
            raise MasterError("The connection to the master has been closed.")

    def _raise(self, error: grpc.RpcError) -> NoReturn:
        code, details = error.code(), error.details() or ""
        if code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            raise TokenError(
                f"The master at {self.address} refuses this process: {details} "
                f"The token of the job is in the file that {PodEnv.TOKEN_FILE} names."
            ) from None
        if code in _NOT_HELD:
            raise _NotHeld(details) from None
        if code in _OUR_FAULT:
            raise ShardError(details) from None
        raise MasterError(f"The master at {self.address} failed: {_words(error)}.") from None


class _NotHeld(ShardError):
    """The master knows no such thing, or not as this worker's."""


def _words(error: grpc.RpcError) -> str:
    return f"{error.code().name}: {error.details()}"


def build_master_client(master_addr: str | None = None) -> Master:
    """The master that the environment names; one inside the program, if it names none.

    With `master_addr` the master at that address, with the job's token if there is one.
    """
    worker_id = _worker_id()
    worker_type = os.environ.get(PodEnv.WORKER_TYPE) or "worker"
    token = _token()
    address = master_addr or os.environ.get(PodEnv.MASTER_ADDR, "")
    public_address = os.environ.get(PodEnv.DLROVER_MASTER_ADDR, "")
    # PyTorch has a variable MASTER_ADDR of its own, which is a host without a port.
    ours = ":" in address
    if ours and token is not None:
        return MasterClient(address, worker_id, worker_type, token=token)
    if master_addr:
        return MasterClient(master_addr, worker_id, worker_type)
    if public_address:
        return MasterClient(public_address, worker_id, worker_type)
    if ours:
        raise TokenError(
            f"{PodEnv.MASTER_ADDR} is {address}, but there is no token for it: {PodEnv.TOKEN_FILE} is "
            f"{os.environ.get(PodEnv.TOKEN_FILE, 'not set')!r}, and no such file, or an empty one."
        )
    if token is not None:
        raise MasterError(
            f"This process has the token of a job, but {PodEnv.MASTER_ADDR} is {address!r}, which is no HOST:PORT."
        )
    return AloneMaster()


def _token() -> str | None:
    path = os.environ.get(PodEnv.TOKEN_FILE)
    if not path:
        return None
    try:
        return Path(path).read_text().strip() or None
    except OSError as error:
        log.warning("The token of the job cannot be read: %s", error)
        return None


def _worker_id() -> int:
    text = os.environ.get(PodEnv.WORKER_ID) or "0"
    try:
        return int(text)
    except ValueError:
        raise MasterError(f"{PodEnv.WORKER_ID} must be a number, not {text!r}.") from None


def _patience() -> float:
    text = os.environ.get(PodEnv.PATIENCE) or str(DEFAULT_PATIENCE_SECONDS)
    try:
        return float(text)
    except ValueError:
        raise MasterError(f"{PodEnv.PATIENCE} must be a number of seconds, not {text!r}.") from None
