"""Calls to the master of a running job on this machine.

Blocking, because the process that hosts a job has no event loop; `job.py` makes the calls in a thread.

Failure modes
    The master has not started, or does not answer in time: `MasterAway`. It was killed and is about to come back, or
    the job has just ended. The master rejects a call: `UserError` with its message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import grpc

from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder
from elasticdl.jobs.status import DesiredResult, JobStatus, RunState, StatusError
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire.channel import open_channel
from elasticdl.wire.master_pb2_grpc import MasterStub
from elasticdl.wire.security import CA_FILE, CERT_FILE, KEY_FILE, TLS_NAME, Security

_TIMEOUT_SECONDS = 10.0
# A master that ends during a call cancels the call.
_UNREACHABLE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class MasterAway(UserError):
    """The master does not answer: it was killed and is about to come back, or the job has just ended."""


def tls_environment(folder: JobFolder) -> dict[str, str]:
    """Returns the variables for encrypted connections of a job on several machines, for others none."""
    if not folder.tls_folder.is_dir():
        return {}
    files = {CA_FILE: "ca.crt", CERT_FILE: "tls.crt", KEY_FILE: "tls.key"}
    named = {variable: str(folder.tls_folder / name) for variable, name in files.items()}
    # A new run may have the folder of another name, and the certificate has the job's.
    return {**named, TLS_NAME: f"elasticdl-{folder.spec().job_name}"}


class MasterClient:
    """A connection to a job's master, as a context manager."""

    def __init__(self, folder: JobFolder) -> None:
        address = folder.master_address()
        if address is None:
            raise MasterAway(f"The master of job {folder.name} has not started yet.")
        self._name = folder.name
        security = Security.of_environment(tls_environment(folder))
        self._channel = open_channel(address, folder.token(), security=security)
        self._stub = MasterStub(self._channel)  # type: ignore[no-untyped-call]

    def status(self, *, timeout_seconds: float = _TIMEOUT_SECONDS, brief: bool = False) -> JobStatus:
        """Returns the current status; if `brief`, without the audit and the tables of the servers."""
        request = pb.StatusRequest(brief=brief)
        return JobStatus.from_text(self._call(self._stub.Status, request, timeout_seconds).json)

    def scale(
        self, *, num_workers: int | None, num_ps: int | None, victims: Sequence[str] = ()
    ) -> DesiredResult:
        request = pb.ScaleRequest(num_workers=num_workers, num_ps=num_ps, victims=victims)
        reply = self._call(self._stub.Scale, request, _TIMEOUT_SECONDS)
        return DesiredResult(message=reply.message, ignored_victims=dict(reply.ignored_victims))

    def stop(self, reason: str) -> None:
        self._call(self._stub.Stop, pb.StopRequest(reason=reason), _TIMEOUT_SECONDS)

    def close(self) -> None:
        self._channel.close()

    def _call(self, method: Any, request: Any, timeout_seconds: float) -> Any:
        try:
            return method(request, timeout=timeout_seconds, wait_for_ready=True)
        except grpc.RpcError as error:
            if error.code() in _UNREACHABLE:
                raise MasterAway(f"The master of job {self._name} does not answer.") from None
            raise UserError(error.details() or str(error.code())) from None

    def __enter__(self) -> MasterClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def current_status(folder: JobFolder, *, timeout_seconds: float = _TIMEOUT_SECONDS) -> JobStatus:
    """Returns the newest status of a job: from its master if it runs, else the last one that was written."""
    if folder.is_running() and folder.master_address() is not None:
        try:
            with MasterClient(folder) as master:
                return master.status(timeout_seconds=timeout_seconds)
        except MasterAway:
            if folder.is_running():
                raise
    return last_status(folder)


def last_status(folder: JobFolder) -> JobStatus:
    """Returns the status that the master has left behind, with what the record of the job says about its end."""
    status = read_status(folder) or JobStatus(job=folder.name)
    record = folder.record()
    return dataclasses.replace(
        status,
        job=folder.name,
        kind=status.kind or record.kind,
        message=status.message or record.message,
        state=RunState(folder.state()),
    )


def read_status(folder: JobFolder) -> JobStatus | None:
    """Returns the status in the job's folder, None if there is none. Raises `UserError` if it is damaged."""
    try:
        return JobStatus.from_text(folder.status_path.read_text())
    except FileNotFoundError:
        return None
    except StatusError as error:
        raise UserError(
            f"The status of job {folder.name} is damaged ({folder.status_path}): {error.message}"
        ) from None
