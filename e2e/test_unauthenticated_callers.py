"""Callers that do not belong to the job, and reports that cannot be true: refused, or ignored."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest

from e2e import programs
from e2e.conftest import ROOT, Gates, Job, wait_until
from elasticai_api.proto import elasticai_api_pb2 as pb
from elasticai_api.proto import progress_pb2
from elasticai_api.proto.elasticai_api_pb2_grpc import MasterStub
from elasticai_api.proto.progress_pb2_grpc import ProgressStub
from elasticdl.wire import master_pb2

# Tells where its master is, and trains when it may.
PROGRAM = """
import json, os, time
from pathlib import Path
from elasticai_api.common.data_shard_service import build_data_shard_service

gates, node = Path(os.environ["ELASTICDL_TEST_GATES"]), os.environ["ELASTICDL_NODE"]
(gates / f"new-{node}").write_text(json.dumps({k: v for k, v in os.environ.items() if k.endswith("MASTER_ADDR")}))
(gates / f"new-{node}").rename(gates / f"began-{node}")
while (gates / "hold").exists():
    time.sleep(0.01)
service = build_data_shard_service(
    batch_size=10, num_epochs=1, dataset_size=200, num_minibatches_per_shard=2, dataset_name="numbers"
)
batches = open(gates / f"batches-{node}", "w", buffering=1)
while shard := service.fetch_shard():
    for start in range(shard.start, shard.end, 10):
        batches.write(f"{start}\\n")
        service.report_batch_done(min(10, shard.end - start))
"""

_SERVICES = (
    pb.DESCRIPTOR.services_by_name["Master"],
    progress_pb2.DESCRIPTOR.services_by_name["Progress"],
    master_pb2.DESCRIPTOR.services_by_name["Master"],
)
SHARD_CALLS = {f"/{_SERVICES[0].full_name}/{method.name}" for method in _SERVICES[0].methods}
ALL_CALLS = {f"/{service.full_name}/{method.name}" for service in _SERVICES for method in service.methods}


@pytest.fixture
def start_held(start_job: Callable[..., Job], tmp_path: Path, gates: Gates) -> Callable[..., Job]:
    def start(*flags: str) -> Job:
        (tmp_path / "train.py").write_text(PROGRAM)
        (gates.folder / "hold").touch()
        command = f"env PYTHONPATH={ROOT} {sys.executable} {tmp_path}/train.py"
        return start_job("train", f"--job_command={command}", "--job_name=held", *flags)

    return start


def _addresses(job: Job, gates: Gates, node: str) -> dict[str, str]:
    """What the program was given."""
    path = gates.folder / f"began-{node}"
    wait_until(lambda: path.exists() or job.process.poll() is not None, f"{node} begins")
    assert path.exists(), job.output
    return dict(json.loads(path.read_text()))


def _listening(job: Job) -> set[str]:
    """Where the master waits for calls."""
    found = job.processes()["master"].net_connections(kind="tcp")
    listening = {f"{c.laddr.ip}:{c.laddr.port}" for c in found if c.status == psutil.CONN_LISTEN}
    # gRPC writes addresses of version 4 as such of version 6.
    return {address.removeprefix("::ffff:") for address in listening}


def _answer(address: str, call: str, token: str | None) -> grpc.StatusCode:
    """What an empty message to this call is answered, whatever the kind of the call."""
    metadata = () if token is None else (("authorization", f"Bearer {token}"),)
    with grpc.insecure_channel(address) as channel:
        method = channel.unary_stream(call, None, None)
        try:
            next(iter(method(b"", metadata=metadata, timeout=60)))
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


@pytest.fixture
def stubs() -> Iterator[Callable[[dict[str, str]], tuple[Any, Any]]]:
    """The data-shard calls as the public package makes them, and the calls of ours, which need the job's token."""
    with ExitStack() as channels:

        def connect(given: dict[str, str]) -> tuple[Any, Any]:
            public, own = (
                channels.enter_context(grpc.insecure_channel(given[name]))
                for name in ("DLROVER_MASTER_ADDR", "MASTER_ADDR")
            )
            return MasterStub(public), ProgressStub(own)  # type: ignore[no-untyped-call]

        yield connect


def _announcement(size: int) -> pb.ReportDatasetShardParamsRequest:
    return pb.ReportDatasetShardParamsRequest(
        batch_size=10,
        num_epochs=1,
        dataset_size=size,
        num_minibatches_per_shard=2,
        dataset_name="numbers",
        task_type=pb.TRAINING,
    )


def test_caller_without_token_is_rejected_at_every_port(start_held: Callable[..., Job], gates: Gates) -> None:
    job = start_held()
    given = _addresses(job, gates, "worker-0")
    assert _listening(job) == set(given.values())
    assert all(address.startswith("127.0.0.1:") for address in given.values())
    for token in (None, "", "that-of-another-job"):
        refused = {_answer(given["MASTER_ADDR"], call, token) for call in ALL_CALLS}
        assert refused == {grpc.StatusCode.UNAUTHENTICATED}
    # Without a token there are data shards, and nothing else, not for callers that have it either.
    token = (job.folder / "token").read_text().strip()
    for call in ALL_CALLS - SHARD_CALLS:
        assert _answer(given["DLROVER_MASTER_ADDR"], call, token) is grpc.StatusCode.UNIMPLEMENTED
    epoch = f"/{_SERVICES[0].full_name}/get_dataset_epoch"
    assert _answer(given["DLROVER_MASTER_ADDR"], epoch, None) is grpc.StatusCode.OK
    (gates.folder / "hold").unlink()
    programs.assert_exact(job, dataset="numbers", epochs=1, size=200)


def test_job_without_public_client_has_no_open_port(start_held: Callable[..., Job], gates: Gates) -> None:
    job = start_held("--public_client=off")
    given = _addresses(job, gates, "worker-0")
    assert given.keys() == {"MASTER_ADDR"}
    assert _listening(job) == {given["MASTER_ADDR"]}
    (gates.folder / "hold").unlink()
    programs.assert_exact(job, dataset="numbers", epochs=1, size=200)


def test_late_report_of_dead_worker_is_ignored(
    start_held: Callable[..., Job], gates: Gates, stubs: Callable[..., tuple[Any, Any]]
) -> None:
    """It arrives from a stranger, late: the dead worker's shard is requeued, and trained."""
    job = start_held("--num_workers=2")
    given = _addresses(job, gates, "worker-0")
    shards, progress = stubs(given)
    shards.report_dataset_shard_params(_announcement(200))
    mine = pb.GetDatasetTaskRequest(worker_id=0, worker_type="worker", dataset_name="numbers")
    task = shards.get_dataset_task(mine)
    assert (task.shard.start, task.shard.end) == (0, 20)
    programs.kill(job, "worker-0")
    _addresses(job, gates, "worker-2")
    for number in (task.task_id, 12345):
        shards.report_dataset_task_result(
            pb.ReportDatasetTaskResultRequest(task_id=number, dataset_name="numbers")
        )
    # There is nothing more for the dead.
    assert shards.get_dataset_task(mine).type == pb.NONE
    moved = progress_pb2.ShardProgress(task_id=task.task_id, position=20, batches=2)
    token = (job.folder / "token").read_text().strip()
    reply = progress.Report(
        progress_pb2.ProgressRequest(
            worker_id=0, worker_type="worker", dataset_name="numbers", shards=[moved]
        ),
        metadata=[("authorization", f"Bearer {token}")],
    )
    assert list(reply.lost) == [task.task_id]
    # From a call with the token on there are none without.
    with pytest.raises(grpc.RpcError) as refused:
        shards.get_dataset_task(mine)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    for words in (
        f"Shard {task.task_id} was reported and is not leased any more.",
        "Shard 12345 was reported and never leased.",
    ):
        # The reply to a call may precede the log line.
        wait_until(lambda words=words: words in programs.log(job, "master"), f"the master says {words}")
    (gates.folder / "hold").unlink()
    programs.assert_exact(job, dataset="numbers", epochs=1, size=200)
    lines = [line for path in gates.folder.glob("batches-*") for line in path.read_text().split()]
    assert Counter(map(int, lines)) == Counter(range(0, 200, 10))


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "size is 0, must be at least 1"),
        (2**63 - 1, "samples"),
        (199, "The data set numbers has 199 samples for one worker and 200 for another."),
    ],
)
def test_unauthenticated_invalid_size_is_refused(
    start_held: Callable[..., Job],
    gates: Gates,
    stubs: Callable[..., tuple[Any, Any]],
    size: int,
    words: str,
) -> None:
    """A report without a token, from any process: it is refused and logged, and the job goes on."""
    job = start_held()
    shards, _ = stubs(_addresses(job, gates, "worker-0"))
    if size == 199:
        shards.report_dataset_shard_params(_announcement(200))
    with pytest.raises(grpc.RpcError) as refused:
        shards.report_dataset_shard_params(_announcement(size))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    details = refused.value.details() or ""
    assert words in details
    wait_until(lambda: details in programs.log(job, "master"), "the master says it")
    (gates.folder / "hold").unlink()
    programs.assert_exact(job, dataset="numbers", epochs=1, size=200)


@pytest.mark.parametrize("size", [0, 2**63])
def test_program_with_invalid_dataset_size_fails(
    start_job: Callable[..., Job], tmp_path: Path, size: int
) -> None:
    text = PROGRAM.replace("dataset_size=200", f"dataset_size={size}")
    (tmp_path / "train.py").write_text(text)
    command = f"env PYTHONPATH={ROOT} {sys.executable} {tmp_path}/train.py"
    job = start_job("train", f"--job_command={command}", "--job_name=size", "--relaunch_on_worker_failure=0")
    assert job.wait() == 1
    assert "worker-0 | elasticai_api.errors.ShardError: dataset_size must be at" in job.output
    assert "worker-0 ended with 1" in job.output
    programs.assert_nothing_left(job)
