"""Talking to the master of a running job on this machine, for the commands that look at jobs or change
them.
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any

import grpc

from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire.channel import open_channel
from elasticdl.wire.master_pb2_grpc import MasterStub

_SECONDS = 10.0
# A master that ends while it is asked cancels the call.
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class MasterControl:
    """One connection to a job's master, as a context manager."""

    def __init__(self, folder: JobFolder) -> None:
        address = folder.master_address()
        if address is None:
            raise UserError(f"The master of job {folder.name} has not started yet.")
        self._name = folder.name
        self._channel = open_channel(address, folder.token())
        self._stub = MasterStub(self._channel)  # type: ignore[no-untyped-call]

    def status(self, *, seconds: float = _SECONDS, brief: bool = False) -> dict[str, Any]:
        """As of this moment; if `brief`, without the audit and the servers' tables."""
        document = json.loads(self._ask(self._stub.Status, pb.StatusRequest(brief=brief), seconds).json)
        assert isinstance(document, dict)
        return document

    def scale(self, *, num_workers: int | None, num_ps: int | None) -> str:
        request = pb.ScaleRequest(num_workers=num_workers, num_ps=num_ps)
        return str(self._ask(self._stub.Scale, request, _SECONDS).message)

    def stop(self, reason: str) -> None:
        self._ask(self._stub.Stop, pb.StopRequest(reason=reason), _SECONDS)

    def _ask(self, method: Any, request: Any, seconds: float) -> Any:
        try:
            return method(request, timeout=seconds, wait_for_ready=True)
        except grpc.RpcError as error:
            if error.code() in _GONE:
                raise MasterAway(f"The master of job {self._name} does not answer.") from None
            raise UserError(error.details() or str(error.code())) from None

    def __enter__(self) -> MasterControl:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()


class MasterAway(UserError):
    """It was killed and is about to come back, or the job has just ended."""


def current_status(folder: JobFolder) -> dict[str, Any]:
    """The newest there is to know of a job: from its master if it runs, else its last word."""
    if folder.is_running() and folder.master_address() is not None:
        try:
            with MasterControl(folder) as master:
                return master.status()
        except MasterAway:
            if folder.is_running():
                raise
    return last_status(folder)


def last_status(folder: JobFolder) -> dict[str, Any]:
    try:
        document = json.loads(folder.status_path.read_text())
    except FileNotFoundError:
        document = {}
    except ValueError as error:
        raise UserError(
            f"The status of job {folder.name} is damaged ({folder.status_path}): {error}."
        ) from None
    record = folder.record()
    return {
        "job": folder.name,
        "kind": record.kind,
        "message": record.message,
        **document,
        "state": folder.state(),
    }
