"""Requests to an API server with one retry policy for all of them.

A request that fails for a reason which may pass (429, 5xx, a broken connection) is repeated with exponential backoff,
for as long as `patience` says: a master waits indefinitely, a person at a terminal does not. `Retry-After` is
honoured. What is wrong with the request itself is raised as a `ClusterError` with the server's message.

Failure modes
    A request that was carried out but whose response was lost is sent twice; the verbs of `client` are idempotent.
    401 is final for a person, who may have the wrong credentials. The credentials of a pod are right: a server that
    has just started takes some seconds to accept them, so a client with unlimited patience repeats the request. An
    error inside the server (500) may pass, or come from a webhook that never answers: `errors_borne` limits how many
    are retried.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from elasticdl.backoff import Backoff
from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.http_transport import (
    HttpTransport,
    Response,
    ResponseStream,
    TransportError,
)
from elasticdl.platforms.kubernetes.kubeconfig import Access

Document = dict[str, Any]

log = logging.getLogger("elasticdl.platforms")

# With jitter, so that clients of a server that restarts do not all retry at once.
_BACKOFF = Backoff(initial_seconds=0.1, max_seconds=5.0, jitter=0.5)
_ERROR_INSIDE = 500
# The text of API servers when a role lacks a right; admission controllers use other texts.
_NO_RIGHT = " cannot "
# And of quotas: they are used up, or have not been computed yet.
_QUOTA = ("exceeded quota:", "failed quota:", "insufficient quota to", "status unknown for quota:")
_TRANSIENT = (429, _ERROR_INSIDE, 502, 503, 504)
_NOT_ACCEPTED = 401
# A right is missing; or the server has just started and has not read the roles yet.
MAY_NOT = (_NOT_ACCEPTED, 403)


class ClusterError(UserError):
    """The API server rejects a request."""

    def __init__(self, message: str, *, status: int, reason: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        # "AlreadyExists", "Forbidden", "Invalid" ...: see the Kubernetes API's StatusReason.
        self.reason = reason

    @property
    def no_room(self) -> bool:
        """A quota of the namespace is used up; it may be free later."""
        return self.status == 403 and any(words in self.message for words in _QUOTA)


class ClusterAway(UserError):
    """The API server has not answered within the caller's patience."""

    def __init__(self, message: str, *, hint: str = "", asks_for: float | None = None) -> None:
        super().__init__(message, hint=hint)
        # Seconds by its last Retry-After.
        self.asks_for = asks_for


class Pauses:
    """Exponential backoff with jitter between attempts."""

    def __init__(self, *, patience: float) -> None:
        self.taken = 0
        self._deadline = time.monotonic() + patience

    async def wait(self, at_least: float | None = None) -> bool:
        """Returns False when patience is used up. `at_least`: the server's Retry-After, to which jitter is added."""
        pause = (at_least or 0.0) + _BACKOFF.delay(self.taken + 1)
        if time.monotonic() + pause > self._deadline:
            return False
        self.taken += 1
        await asyncio.sleep(pause)
        return True


class ApiConnection:
    """A connection to an API server with credentials, inside one event loop."""

    def __init__(
        self, access: Access, *, patience: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.server = access.server
        self._identity = access.identity
        self._transport = HttpTransport(access)
        self._patience = patience
        self._clock = clock
        # Whether a watch can begin with all objects. None: not asked yet.
        self.streams_lists: bool | None = None
        # The time of the last response with a date, by the server's clock and by ours.
        self._server_time: tuple[float, float] | None = None

    async def close(self) -> None:
        await self._transport.close()

    @property
    def now(self) -> float | None:
        """The time by the server's clock, which all clients share. None before it has been seen."""
        if self._server_time is None:
            return None
        theirs, ours = self._server_time
        return theirs + self._clock() - ours

    def pauses(self, patience: float | None = None) -> Pauses:
        return Pauses(patience=self._patience if patience is None else patience)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Document | None = None,
        content: str = "application/json",
        pauses: Pauses | None = None,
        errors_borne: int | None = None,
    ) -> Document:
        pauses = pauses or self.pauses()
        is_renewed = is_logged = False
        errors = 0
        while True:
            wait: float | None = None
            error_inside: ClusterError | None = None
            try:
                response = await self._transport.request(
                    method,
                    path,
                    query=query or {},
                    body=json.dumps(body).encode() if body is not None else None,
                    headers={"Content-Type": content, **await self._credentials()},
                )
            except TransportError as error:
                trouble = str(error)
            else:
                self._note_time(response.headers.get("date", ""))
                if response.status < 400:
                    answer: Document = response.json()
                    return answer
                if response.status == _NOT_ACCEPTED and self._renew() and not is_renewed:
                    is_renewed = True
                    continue
                if not self._is_transient(response.status):
                    raise self._rejection(response)
                trouble = f"{response.status} {_message(response)}"
                wait = _retry_after(response)
                if response.status == _ERROR_INSIDE:
                    error_inside = self._rejection(response)
                    errors += 1
                    if errors_borne is not None and errors > errors_borne:
                        raise error_inside
                elif response.status == _NOT_ACCEPTED and not is_logged:
                    is_logged = True
                    log.warning("%s Retrying.", self._rejection(response).message)
            if not await pauses.wait(wait):
                raise error_inside or ClusterAway(
                    f"The cluster at {self.server} does not answer ({trouble}).",
                    hint="`kubectl cluster-info` shows whether it can be reached from here.",
                    asks_for=wait,
                )

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, read_seconds: float | None
    ) -> AsyncIterator[ResponseStream]:
        """Yields a response while it arrives. Repeats the request only with renewed credentials; raises
        `TransportError` when the connection breaks.
        """
        is_renewed = False
        async with contextlib.AsyncExitStack() as responses:
            while True:
                response = await responses.enter_async_context(
                    self._transport.stream(
                        path, query=query, headers=await self._credentials(), read_seconds=read_seconds
                    )
                )
                if response.status < 400:
                    break
                rejected = await response.read()
                if rejected.status != _NOT_ACCEPTED or is_renewed or not self._renew():
                    raise self._rejection(rejected)
                is_renewed = True
            yield response

    async def _credentials(self) -> dict[str, str]:
        return dict(await asyncio.to_thread(self._identity.headers))

    def _note_time(self, date: str) -> None:
        with contextlib.suppress(TypeError, ValueError):
            self._server_time = email.utils.parsedate_to_datetime(date).timestamp(), self._clock()

    def _renew(self) -> bool:
        """Renews credentials after a 401. Returns whether they may be newer."""
        if self._identity.certified:
            self._transport.reconnect()
        return self._identity.renew()

    def _is_transient(self, status: int) -> bool:
        return status in _TRANSIENT or (status == _NOT_ACCEPTED and self._patience == math.inf)

    def _rejection(self, response: Response) -> ClusterError:
        words, reason = _message(response), ""
        try:
            reason = str(response.json().get("reason") or "")
        except (ValueError, AttributeError):
            reason = response.phrase
        hint = ""
        if response.status == _NOT_ACCEPTED:
            words = f"The cluster at {self.server} does not accept the credentials: {words}"
            hint = "`kubectl auth can-i create pods` shows whether kubectl's are accepted."
        elif response.status == 403 and _NO_RIGHT in words:
            hint = (
                "The role that jobs need is in elasticdl/manifests/elasticdl-rbac.yaml, that of the controller in "
                "edl-controller.yaml."
            )
        return ClusterError(words, status=response.status, reason=reason, hint=hint)


def _message(response: Response) -> str:
    try:
        return str(response.json().get("message") or response.phrase)
    except (ValueError, AttributeError):
        return response.text.strip()[:500] or response.phrase


def _retry_after(response: Response) -> float | None:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None
