"""What can go wrong between a parameter server and those who call it, and which gRPC status says so.

The server raises these and sends them as a status; the client makes of the status the same error again.
What a user can put right (a gradient that is not a number, a checkpoint of another model) is a
`UserError` on both sides.
"""

from __future__ import annotations

import grpc

from elasticdl.jobs.errors import UserError


class ServerFailure(Exception):
    """A parameter server did not do what it was asked."""


class NotReady(ServerFailure):
    """The server is being started or restored, or has not heard yet of the caller's generation. Try again."""


class OldGeneration(ServerFailure):
    """The caller's generation is over: its values and its leases are void."""


class WorkerFenced(ServerFailure):
    """The master has given up this worker; nothing more is taken from it."""


class NothingHeld(ServerFailure):
    """The server has no values yet, or no frozen copy of that name."""


class DiskFull(ServerFailure):
    """A file could not be written for want of space."""


class ServersUnreachable(ServerFailure):
    """No answer for as long as the caller was willing to wait."""


class CallStopped(ServerFailure):
    """The caller changed its mind while it waited."""


_CODES: dict[type[Exception], grpc.StatusCode] = {
    NotReady: grpc.StatusCode.UNAVAILABLE,
    OldGeneration: grpc.StatusCode.FAILED_PRECONDITION,
    WorkerFenced: grpc.StatusCode.PERMISSION_DENIED,
    NothingHeld: grpc.StatusCode.NOT_FOUND,
    DiskFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    UserError: grpc.StatusCode.INVALID_ARGUMENT,
    ValueError: grpc.StatusCode.INVALID_ARGUMENT,
}
_KINDS = {code: kind for kind, code in _CODES.items() if kind is not ValueError}


def status_code(error: Exception) -> grpc.StatusCode | None:
    """The status that tells of an error; None if it is none of those above, but a fault of ours."""
    for kind, code in _CODES.items():
        if isinstance(error, kind):
            return code
    return None


def from_status(code: grpc.StatusCode, details: str) -> Exception:
    """The error that a status tells of."""
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        message, _, hint = details.partition("\n")
        return UserError(message, hint=hint)
    return _KINDS.get(code, ServerFailure)(details or code.name)
