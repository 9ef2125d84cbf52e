"""Errors between a parameter server and its callers, and the gRPC status of each.

The server raises these and sends them as a status; the client makes of the status the same error again. What
a user can put right (a gradient that is not a number, a checkpoint of another model) is a `UserError` on both
sides.
"""

from __future__ import annotations

import grpc

from elasticdl.errors import UserError


class WriteFailed(UserError):
    """A checkpoint file could not be written: a full disk, a missing permission."""


class ServerFailure(Exception):
    """A parameter server did not do what it was asked."""


class ReplicaDiverged(Exception):
    """The updates of a primary do not fit the state of its replica: the replica has to be replaced."""


class NotReady(ServerFailure):
    """The server is being started or restored, or has not heard yet of the caller's generation. Try again."""


class NotPrimary(ServerFailure):
    """Another server than the caller believes is the primary."""


class NotFound(ServerFailure):
    """The server has no values yet, or no copy-on-write snapshot of that name."""


class CallCancelled(ServerFailure):
    """The caller has canceled the call, by another request or by its exit."""


class ServersUnreachable(ServerFailure):
    """No answer for as long as the caller was willing to wait."""


class Abandoned(ServerFailure):
    """There is no point in trying further: the caller should ask the master what is wanted of it now."""


class StaleGeneration(Abandoned):
    """The caller's generation is over: its values and its leases are void."""


class WorkerFenced(Abandoned):
    """The master has given up this worker; nothing more is taken from it."""


class CallStopped(Abandoned):
    """The caller itself changed its mind while it waited."""


# In this order: an error is of the first kind that fits.
_CODES: tuple[tuple[type[Exception], grpc.StatusCode], ...] = (
    (NotReady, grpc.StatusCode.UNAVAILABLE),
    (StaleGeneration, grpc.StatusCode.FAILED_PRECONDITION),
    (WorkerFenced, grpc.StatusCode.PERMISSION_DENIED),
    (NotPrimary, grpc.StatusCode.ABORTED),
    (NotFound, grpc.StatusCode.NOT_FOUND),
    (CallCancelled, grpc.StatusCode.CANCELLED),
    (WriteFailed, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (UserError, grpc.StatusCode.INVALID_ARGUMENT),
    (ValueError, grpc.StatusCode.INVALID_ARGUMENT),
)


def status_code(error: Exception) -> grpc.StatusCode | None:
    """The status that tells of an error; None if it is none of those above, but a fault of ours."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), None)


def from_status(code: grpc.StatusCode, details: str) -> Exception:
    """The error that a status tells of."""
    kind = next((kind for kind, known in _CODES if known is code), ServerFailure)
    if issubclass(kind, UserError):
        message, _, hint = details.partition("\n")
        return kind(message, hint=hint)
    return kind(details or code.name)


# Frames carry the numbers of the same statuses.
_NUMBERS: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


def status_number(error: Exception) -> int:
    code = status_code(error) or grpc.StatusCode.INVALID_ARGUMENT
    number: int = code.value[0]
    return number


def from_status_number(number: int, details: str) -> Exception:
    return from_status(_NUMBERS.get(number, grpc.StatusCode.UNKNOWN), details)
