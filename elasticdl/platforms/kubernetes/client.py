"""Kubernetes' API, as far as we use it: documents in, documents out, and what is a passing trouble stays here.

Objects are the plain dictionaries that YAML files hold; there is no class for each kind. A request that meets a server
that is restarting, overloaded (429) or out of reach is made again with growing pauses, for as long as `patience` says:
a master waits for ever, a person at a terminal does not. What is wrong with the request itself is raised as a
`ClusterError` with Kubernetes' own words. Credentials that are not accepted (401) are wrong where a person asks; a
master's are its pod's, and a server that has just started takes some seconds to accept them.

Failure modes
    A request that was carried out but whose answer was lost is made twice: a second creation is recognised by who
    owns the object (of one without an owner: by its content, in which whoever makes it may have put a mark of his own),
    a second deletion finds nothing, merge patches say the same thing again. An error inside the server (500) may pass,
    or be that of a webhook which never answers: whoever creates something may ask to be told of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import importlib
import json
import logging
import math
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from elasticdl.backoff import Backoff
from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.kubeconfig import Access, find_access, inside_access

if TYPE_CHECKING:
    import httpx

Document = dict[str, Any]

log = logging.getLogger("elasticdl.platforms")

# The path of a kind and the name of its objects there.
KINDS = {
    "ConfigMap": ("api/v1", "configmaps"),
    "Event": ("api/v1", "events"),
    "NetworkPolicy": ("apis/networking.k8s.io/v1", "networkpolicies"),
    "Pod": ("api/v1", "pods"),
    "Secret": ("api/v1", "secrets"),
    "Service": ("api/v1", "services"),
}
# With jitter, so that clients of a server that restarts do not all retry at once.
_BACKOFF = Backoff(initial_seconds=0.1, max_seconds=5.0, jitter=0.5)
_REQUEST_SECONDS = 30.0
_HTTP_COMMAND = "httpx._main"
_ERROR_INSIDE = 500
# What API servers say of a right that is missing; others who forbid something have words of their own.
_NO_RIGHT = " cannot "
# And of quotas: there is no room, or nobody has counted yet how much there is.
_QUOTA = ("exceeded quota:", "failed quota:", "insufficient quota to", "status unknown for quota:")
_PASSING = (429, _ERROR_INSIDE, 502, 503, 504)
_NOT_ACCEPTED = 401
# That one may not: said of a missing right, and of every right by a server that has not read them yet.
MAY_NOT = (_NOT_ACCEPTED, 403)


class ClusterError(UserError):
    """What the API server has against a request."""

    def __init__(self, message: str, *, status: int, reason: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status
        # "AlreadyExists", "Forbidden", "Invalid" ...: see the Kubernetes API's StatusReason.
        self.reason = reason

    @property
    def no_room(self) -> bool:
        """Not now: a quota of the namespace is in the way."""
        return self.status == 403 and any(words in self.message for words in _QUOTA)


class ClusterAway(UserError):
    """Nobody has answered for longer than one was willing to wait."""

    def __init__(self, message: str, *, hint: str = "", asks_for: float | None = None) -> None:
        super().__init__(message, hint=hint)
        # How long the server wants to be left alone.
        self.asks_for = asks_for


@dataclass(frozen=True, kw_only=True)
class Listing:
    items: tuple[Document, ...]
    # Where a watch has to begin to miss nothing.
    version: str


class Cluster:
    """One namespace of a cluster. To be used inside one event loop."""

    def __init__(
        self, access: Access, *, patience: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.namespace = access.namespace
        self.server = access.server
        self._access = access
        self._patience = patience
        self._http: httpx.AsyncClient | None = None
        self._clock = clock
        # When the last answer came, by the server's clock and by ours.
        self._told: tuple[float, float] | None = None
        # Whose connections were made with a certificate that is refused by now. Some may still be read from.
        self._former: list[httpx.AsyncClient] = []

    @classmethod
    def connect(cls, *, namespace: str = "", context: str = "", patience: float = 15.0) -> Cluster:
        """By kubectl's configuration, or by the pod's own account. Asks nobody yet."""
        return cls(find_access(namespace=namespace, context=context), patience=patience)

    @classmethod
    def inside(cls, *, patience: float) -> Cluster:
        """By the pod's own account, whatever configurations of kubectl there are."""
        return cls(inside_access(), patience=patience)

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        clients = [*self._former, *([self._http] if self._http is not None else [])]
        self._former, self._http = [], None
        for client in clients:
            await client.aclose()

    @property
    def now(self) -> float | None:
        """What time it is by the server's clock; a person's, or a machine's, may be wrong. None if it does not say."""
        if self._told is None:
            return None
        theirs, ours = self._told
        return theirs + self._clock() - ours

    # -- objects ---------------------------------------------------------------------------------------------

    async def get(self, kind: str, name: str) -> Document | None:
        """None if there is no such object."""
        try:
            return await self._ask("GET", self.path(kind, name))
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    async def list(
        self, kind: str, *, labels: Mapping[str, str] | None = None, fields: Mapping[str, str] | None = None
    ) -> Listing:
        answer = await self._ask("GET", self.path(kind), query=selection(labels, fields))
        # Objects in a list do not say what they are.
        items = tuple({**item, "kind": kind} for item in answer.get("items") or [])
        return Listing(items=items, version=str(answer["metadata"]["resourceVersion"]))

    async def create(
        self, document: Document, *, errors_borne: int | None = None, patience: float | None = None
    ) -> Document:
        """The object as the cluster has it now. `ClusterError` with reason AlreadyExists if it was there before.

        `errors_borne`: how many errors inside the server are passed over before the next is raised. None: all of them,
        as long as there is patience. `patience`: if it is another than for other requests.
        """
        kind, name = document["kind"], document["metadata"]["name"]
        pauses = self._pauses(patience)
        try:
            return await self._ask(
                "POST", self.path(kind), body=document, pauses=pauses, errors_borne=errors_borne
            )
        except ClusterError as error:
            if error.reason != "AlreadyExists" or not pauses.taken:
                raise
            there = await self.get(kind, name)
            if there is None or not _is_it(there, document):
                raise
            return there

    async def patch(
        self, kind: str, name: str, changes: Document, *, patience: float | None = None
    ) -> Document | None:
        """A merge patch: what is None is removed, what is not named stays. None if there is no such object.
        `patience`: if it is another than for other requests.
        """
        try:
            return await self._ask(
                "PATCH",
                self.path(kind, name),
                body=changes,
                content="application/merge-patch+json",
                pauses=self._pauses(patience),
            )
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    async def delete(
        self,
        kind: str,
        name: str,
        *,
        grace_seconds: int | None = None,
        uid: str = "",
        version: str = "",
        patience: float | None = None,
    ) -> Document | None:
        """What it owns goes with it, in the background. None if there is no such object (or not with that uid, or it
        has changed since it had that version). `patience`: if it is another than for other requests.
        """
        options: Document = {"propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        conditions = {"uid": uid, "resourceVersion": version}
        if uid or version:
            options["preconditions"] = {name: value for name, value in conditions.items() if value}
        try:
            return await self._ask(
                "DELETE", self.path(kind, name), body=options, pauses=self._pauses(patience)
            )
        except ClusterError as error:
            if error.status == 404 or ((uid or version) and error.status == 409):
                return None
            raise

    async def logs(
        self, pod: str, *, follow: bool = False, tail: int | None = None, previous: bool = False
    ) -> AsyncIterator[bytes]:
        """What a pod has printed, piece by piece as it comes. `ClusterError` if there is nothing to read yet."""
        query: dict[str, str] = {"follow": "true"} if follow else {}
        if tail is not None:
            query["tailLines"] = str(tail)
        if previous:
            query["previous"] = "true"
        async with self.stream(f"{self.path('Pod', pod)}/log", query, read_seconds=None) as answer:
            async for piece in answer.aiter_bytes():
                yield piece

    def path(self, kind: str, name: str = "") -> str:
        group, plural = KINDS[kind]
        return f"/{group}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    # -- requests --------------------------------------------------------------------------------------------

    async def _ask(
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
        http = http_library()
        pauses = pauses or self._pauses()
        renewed = told = False
        errors = 0
        while True:
            wait: float | None = None
            error_inside: ClusterError | None = None
            try:
                response = await self._client().request(
                    method,
                    path,
                    params=dict(query or {}),
                    content=json.dumps(body) if body is not None else None,
                    headers={
                        "Content-Type": content,
                        **await asyncio.to_thread(self._access.identity.headers),
                    },
                    extensions=self._extensions(),
                )
            except http.TransportError as error:
                trouble = f"{type(error).__name__}: {error}"
            else:
                self._note_time(response.headers.get("Date", ""))
                if response.status_code < 400:
                    answer: Document = response.json()
                    return answer
                if response.status_code == _NOT_ACCEPTED and self._renew() and not renewed:
                    renewed = True
                    continue
                if not self._passes(response.status_code):
                    raise self._refusal(response)
                trouble = f"{response.status_code} {_words(response)}"
                wait = _asked_to_wait(response)
                if response.status_code == _ERROR_INSIDE:
                    error_inside = self._refusal(response)
                    errors += 1
                    if errors_borne is not None and errors > errors_borne:
                        raise error_inside
                elif response.status_code == _NOT_ACCEPTED and not told:
                    told = True
                    log.warning("%s It is tried again.", self._refusal(response).message)
            if not await pauses.wait(wait):
                raise error_inside or ClusterAway(
                    f"The cluster at {self.server} does not answer ({trouble}).",
                    hint="`kubectl cluster-info` shows whether it can be reached from here.",
                    asks_for=wait,
                )

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, read_seconds: float | None
    ) -> AsyncIterator[httpx.Response]:
        """One answer, to be read while it comes. Raises as requests do, and is made twice only with new credentials."""
        http = http_library()
        renewed = False
        async with contextlib.AsyncExitStack() as answers:
            while True:
                headers = await asyncio.to_thread(self._access.identity.headers)
                answer = self._client().stream(
                    "GET",
                    path,
                    params=dict(query),
                    headers=headers,
                    timeout=http.Timeout(_REQUEST_SECONDS, read=read_seconds),
                    extensions=self._extensions(),
                )
                response = await answers.enter_async_context(answer)
                if response.status_code < 400:
                    break
                await response.aread()
                if response.status_code != _NOT_ACCEPTED or renewed or not self._renew():
                    raise self._refusal(response)
                renewed = True
            yield response

    def _note_time(self, date: str) -> None:
        with contextlib.suppress(TypeError, ValueError):
            self._told = email.utils.parsedate_to_datetime(date).timestamp(), self._clock()

    def _pauses(self, patience: float | None = None) -> Pauses:
        return Pauses(patience=self._patience if patience is None else patience)

    def _renew(self) -> bool:
        """After credentials were refused: whether there may be newer ones to ask with."""
        if self._access.identity.certified and self._http is not None:
            self._former.append(self._http)
            self._http = None
        return self._access.identity.renew()

    def _passes(self, status: int) -> bool:
        return status in _PASSING or (status == _NOT_ACCEPTED and self._patience == math.inf)

    def _extensions(self) -> dict[str, Any]:
        name = self._access.server_name
        return {"sni_hostname": name} if name else {}

    def _client(self) -> httpx.AsyncClient:
        if self._http is None:
            http = http_library()
            # Pods are created together, and watches hold connections for good: no limit of ours on them.
            limits = http.Limits(max_connections=None, max_keepalive_connections=20)
            self._http = http.AsyncClient(
                base_url=self.server,
                verify=self._access.tls,
                headers={"User-Agent": "elasticdl", "Accept": "application/json"},
                limits=limits,
                timeout=_REQUEST_SECONDS,
                trust_env=not self._access.inside,
            )
        return self._http

    def _refusal(self, response: httpx.Response) -> ClusterError:
        words, reason = _words(response), ""
        try:
            reason = str(response.json().get("reason") or "")
        except ValueError:
            reason = response.reason_phrase
        hint = ""
        if response.status_code == _NOT_ACCEPTED:
            words = f"The cluster at {self.server} does not accept the credentials: {words}"
            hint = "`kubectl auth can-i create pods` shows whether kubectl's are accepted."
        elif response.status_code == 403 and _NO_RIGHT in words:
            hint = "The role that jobs need is in elasticdl/manifests/elasticdl-rbac.yaml."
        return ClusterError(words, status=response.status_code, reason=reason, hint=hint)


class Pauses:
    """Growing pauses between attempts, each a little different so that not all come back at once."""

    def __init__(self, *, patience: float) -> None:
        self.taken = 0
        self._deadline = time.monotonic() + patience

    async def wait(self, at_least: float | None = None) -> bool:
        """False if there is no more patience. `at_least`: what the server asks for, which it asks of everybody."""
        pause = (at_least or 0.0) + _BACKOFF.delay(self.taken + 1)
        if time.monotonic() + pause > self._deadline:
            return False
        self.taken += 1
        await asyncio.sleep(pause)
        return True


def selection(labels: Mapping[str, str] | None, fields: Mapping[str, str] | None) -> dict[str, str]:
    query = {}
    for name, given in (("labelSelector", labels), ("fieldSelector", fields)):
        if given:
            query[name] = ",".join(f"{key}={value}" for key, value in given.items())
    return query


def http_library() -> Any:
    """httpx, without its own command line: that takes longer to import than all the rest of it."""
    kept_out = "httpx" not in sys.modules and _HTTP_COMMAND not in sys.modules
    if kept_out:
        sys.modules[_HTTP_COMMAND] = None  # type: ignore[assignment]
    try:
        return importlib.import_module("httpx")
    except ModuleNotFoundError as error:
        raise UserError(
            f"Jobs on Kubernetes need the package {error.name}.", hint="pip install 'elasticdl[kubernetes]'"
        ) from error
    finally:
        if kept_out:
            del sys.modules[_HTTP_COMMAND]


def _words(response: httpx.Response) -> str:
    try:
        return str(response.json().get("message") or response.reason_phrase)
    except (ValueError, AttributeError):
        return response.text.strip()[:500] or response.reason_phrase


def _asked_to_wait(response: httpx.Response) -> float | None:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else None


def uid_of(document: Document) -> str:
    """Tells an object from all others that ever had its name. "" if the cluster does not know it yet."""
    return str(document["metadata"].get("uid") or "")


def owners_of(document: Document) -> set[str]:
    """The uids of those with which it goes."""
    return {str(owner.get("uid")) for owner in document["metadata"].get("ownerReferences") or []}


def _is_it(there: Document, asked_for: Document) -> bool:
    """Whether an object is the one that was asked for.

    Not by all that it says: the cluster writes amounts in its own way, leaves out what is empty, and adds to it. The
    uid of an owner is that of one job, and of no other that had its name before.
    """
    found, wanted = there["metadata"], asked_for["metadata"]
    if found.get("deletionTimestamp"):
        return False
    if wanted.get("ownerReferences"):
        return owners_of(asked_for) == owners_of(there) and _has(found, wanted, "labels")
    same = there.get("data") == asked_for.get("data")
    return same and all(_has(found, wanted, name) for name in ("labels", "annotations"))


def _has(found: Document, wanted: Document, name: str) -> bool:
    return (wanted.get(name) or {}).items() <= (found.get(name) or {}).items()
