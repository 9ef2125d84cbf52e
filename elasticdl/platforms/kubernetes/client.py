"""The Kubernetes API: plain documents in, plain documents out.

Objects are the dictionaries that YAML files hold; there is no class for each kind. A `Cluster` acts in one namespace;
`in_namespace()` and `all_namespaces()` give others over the same connections. Kinds of cluster scope (Node,
CustomResourceDefinition) ignore the namespace. Retries are the business of `api_connection`.

Failure modes
    A request that was carried out but whose response was lost is sent twice. A second creation or replacement is
    recognised: by the owner of the object, or, without an owner, by its content, into which the caller may put a mark
    of its own. A second deletion finds nothing, and merge patches are idempotent. A list whose continue token expires
    between two pages (410) starts over as one page.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

from elasticdl.platforms.kubernetes.api_connection import (
    MAY_NOT,
    ApiConnection,
    ClusterAway,
    ClusterError,
    Document,
    Pauses,
)
from elasticdl.platforms.kubernetes.api_resources import ALL_NAMESPACES, Resource, resource_of
from elasticdl.platforms.kubernetes.http_transport import ResponseStream, TransportError
from elasticdl.platforms.kubernetes.kubeconfig import Access, find_access, inside_access
from elasticdl.platforms.kubernetes.selectors import Selector, selector_query

__all__ = [
    "ALL_NAMESPACES",
    "MAY_NOT",
    "Cluster",
    "ClusterAway",
    "ClusterError",
    "Document",
    "Listing",
    "Pauses",
    "Resource",
    "Subresource",
    "TransportError",
    "owners_of",
    "uid_of",
]

Subresource = Literal["", "status", "scale"]

# kubectl's page size, too: a response of some megabytes at most.
_PAGE_SIZE = 500
_EXPIRED = 410
# The first release in which servers have WatchList turned on.
_STREAMS_LISTS = (1, 32)
# The part of an object that a request writes, by subresource.
_PARTS_OF: dict[Subresource, tuple[str, ...]] = {
    "": ("data", "spec"),
    "status": ("status",),
    "scale": ("spec",),
}


@dataclass(frozen=True, kw_only=True)
class Listing:
    items: tuple[Document, ...]
    # Where a watch has to begin to miss nothing.
    version: str


class Cluster:
    """A namespace of a cluster, or all of them, inside one event loop."""

    def __init__(
        self, access: Access, *, patience: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._open(ApiConnection(access, patience=patience, clock=clock), access.namespace)

    def _open(self, connection: ApiConnection, namespace: str) -> None:
        self._connection = connection
        self.namespace = namespace
        self.server = connection.server

    @classmethod
    def connect(cls, *, namespace: str = "", context: str = "", patience: float = 15.0) -> Cluster:
        """Connects with kubectl's configuration, or with the pod's own account. Sends no request yet."""
        return cls(find_access(namespace=namespace, context=context), patience=patience)

    @classmethod
    def inside(cls, *, patience: float) -> Cluster:
        """Connects with the pod's own account, whatever configurations of kubectl there are."""
        return cls(inside_access(), patience=patience)

    def in_namespace(self, namespace: str) -> Cluster:
        """Returns another namespace of the same cluster, over the same connections; closing either closes both."""
        other = object.__new__(Cluster)
        other._open(self._connection, namespace)
        return other

    def all_namespaces(self) -> Cluster:
        """Returns the scope in which lists and watches see every namespace; see `in_namespace`."""
        return self.in_namespace(ALL_NAMESPACES)

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._connection.close()

    @property
    def now(self) -> float | None:
        """The time by the server's clock, which all clients share. None before it has been seen."""
        return self._connection.now

    # -- objects ---------------------------------------------------------------------------------------------

    async def get(self, kind: str | Resource, name: str, *, subresource: Subresource = "") -> Document | None:
        """Returns None if there is no such object."""
        try:
            return await self._connection.request("GET", self.path(kind, name, subresource))
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    async def list(
        self,
        kind: str | Resource,
        *,
        labels: Selector | None = None,
        fields: Selector | None = None,
        page_size: int = _PAGE_SIZE,
        transform: Callable[[Document], Document] | None = None,
    ) -> Listing:
        """Returns all objects of the scope that match, as of one version. Asks for them in pages.

        `transform`: applied to every object of a page before the next is requested, to keep less of it in memory.
        """
        selected = selector_query(labels, fields)
        items: list[Document] = []
        page = {"limit": str(page_size)}
        while True:
            try:
                answer = await self._connection.request("GET", self.path(kind), query={**selected, **page})
            except ClusterError as error:
                if error.status != _EXPIRED or "continue" not in page:
                    raise
                # The server has forgotten that version. In one page, it cannot happen again.
                items, page = [], {}
                continue
            # Objects in a list do not name their kind.
            found = ({**item, "kind": resource_of(kind).kind} for item in answer.get("items") or [])
            items += map(transform, found) if transform else found
            metadata = answer["metadata"]
            if not metadata.get("continue"):
                # Metrics have no version.
                return Listing(items=tuple(items), version=str(metadata.get("resourceVersion", "")))
            page = {"limit": str(page_size), "continue": str(metadata["continue"])}

    async def is_served(self, resource: Resource) -> bool:
        """Returns whether the API server has this kind: that of a CustomResourceDefinition may not be installed."""
        try:
            answer = await self._connection.request("GET", f"/apis/{resource.api_version}")
        except ClusterError as error:
            if error.status == 404:
                return False
            raise
        return any(each.get("name") == resource.plural for each in answer.get("resources") or [])

    async def streams_lists(self) -> bool:
        """Returns whether the API server should be asked for a watch that begins with all objects; asked once for all
        scopes of the connection. A server that is new enough may still refuse (`refuse_streamed_lists`).
        """
        if self._connection.streams_lists is None:
            try:
                answer = await self._connection.request("GET", "/version")
            except ClusterError:
                # Hidden by a proxy, say.
                answer = {}
            self._connection.streams_lists = _release(answer) >= _STREAMS_LISTS
        return self._connection.streams_lists

    def refuse_streamed_lists(self) -> None:
        """The API server has refused such a watch: its feature is turned off."""
        self._connection.streams_lists = False

    async def create(
        self,
        document: Document,
        *,
        resource: Resource | None = None,
        errors_borne: int | None = None,
        patience: float | None = None,
    ) -> Document:
        """Returns the object as the cluster has it now. `ClusterError` with reason AlreadyExists if it existed before.

        `resource`: of a kind that is not known by name. `errors_borne`: how many errors inside the server are retried
        before the next is raised; None: all, as long as there is patience. `patience`: in place of the client's.
        """
        pauses = self._connection.pauses(patience)
        kind: str | Resource = resource or str(document["kind"])
        scope = self._scope_of(document)
        try:
            return await self._connection.request(
                "POST", scope.path(kind), body=document, pauses=pauses, errors_borne=errors_borne
            )
        except ClusterError as error:
            if error.reason != "AlreadyExists" or not pauses.taken:
                raise
            found = await scope.get(kind, document["metadata"]["name"])
            if found is None or not _is_same(found, document):
                raise
            return found

    async def replace(
        self,
        document: Document,
        *,
        resource: Resource | None = None,
        subresource: Subresource = "",
        patience: float | None = None,
    ) -> Document | None:
        """Compare-and-set: writes the whole object if it still has the document's `metadata.resourceVersion`.

        Returns the object as the cluster has it now, None if there is no such object. `ClusterError` with reason
        Conflict if it has changed since.
        """
        pauses = self._connection.pauses(patience)
        kind: str | Resource = resource or str(document["kind"])
        scope, name = self._scope_of(document), document["metadata"]["name"]
        try:
            return await self._connection.request(
                "PUT", scope.path(kind, name, subresource), body=document, pauses=pauses
            )
        except ClusterError as error:
            if error.status == 404:
                return None
            if error.reason != "Conflict" or not pauses.taken:
                raise
            found = await scope.get(kind, name, subresource=subresource)
            parts = _PARTS_OF[subresource]
            if found is None or not _is_written(found, document, parts):
                raise
            return found

    async def patch(
        self,
        kind: str | Resource,
        name: str,
        changes: Document,
        *,
        subresource: Subresource = "",
        patience: float | None = None,
    ) -> Document | None:
        """A merge patch: None removes a field, fields that are not named stay. Returns None if there is no such object.

        With `metadata.resourceVersion` in it, a patch is a compare-and-set as `replace` is. `patience`: in place of the
        client's.
        """
        try:
            return await self._connection.request(
                "PATCH",
                self.path(kind, name, subresource),
                body=changes,
                content="application/merge-patch+json",
                pauses=self._connection.pauses(patience),
            )
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    async def delete(
        self,
        kind: str | Resource,
        name: str,
        *,
        grace_seconds: int | None = None,
        uid: str = "",
        version: str = "",
        patience: float | None = None,
    ) -> Document | None:
        """Deletes the object and, in the background, what it owns. Returns None if there is no such object, or not with
        that uid, or no longer with that version. `patience`: in place of the client's.
        """
        options: Document = {"propagationPolicy": "Background"}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        conditions = {"uid": uid, "resourceVersion": version}
        if uid or version:
            options["preconditions"] = {name: value for name, value in conditions.items() if value}
        try:
            return await self._connection.request(
                "DELETE", self.path(kind, name), body=options, pauses=self._connection.pauses(patience)
            )
        except ClusterError as error:
            if error.status == 404 or ((uid or version) and error.status == 409):
                return None
            raise

    async def logs(
        self, pod: str, *, follow: bool = False, tail: int | None = None, previous: bool = False
    ) -> AsyncIterator[bytes]:
        """Yields what a pod has printed, in chunks as they arrive. `ClusterError` if there is nothing to read yet."""
        query: dict[str, str] = {"follow": "true"} if follow else {}
        if tail is not None:
            query["tailLines"] = str(tail)
        if previous:
            query["previous"] = "true"
        async with self.stream(f"{self.path('Pod', pod)}/log", query, read_seconds=None) as response:
            async for chunk in response.aiter_bytes():
                yield chunk

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, read_seconds: float | None
    ) -> AsyncIterator[ResponseStream]:
        """Yields a response while it arrives. Raises `ClusterError`, and `TransportError` when the connection breaks;
        not repeated.
        """
        async with self._connection.stream(path, query, read_seconds=read_seconds) as response:
            yield response

    def path(self, kind: str | Resource, name: str = "", subresource: Subresource = "") -> str:
        return resource_of(kind).path(namespace=self.namespace, name=name, subresource=subresource)

    def _scope_of(self, document: Document) -> Cluster:
        """The namespace that a document names counts only where no other has been chosen."""
        named = str(document["metadata"].get("namespace") or "")
        return self.in_namespace(named) if self.namespace == ALL_NAMESPACES and named else self


def _release(version: Document) -> tuple[int, int]:
    """Reads what a server says of its version; some add a plus sign to the minor one."""
    numbers = [re.match(r"\d+", str(version.get(part) or "")) for part in ("major", "minor")]
    major, minor = (int(number[0]) if number else 0 for number in numbers)
    return major, minor


def uid_of(document: Document) -> str:
    """Tells an object from all others that ever had its name. "" if the cluster does not know it yet."""
    return str(document["metadata"].get("uid") or "")


def owners_of(document: Document) -> set[str]:
    """The uids of the owners, with the last of which it is deleted."""
    return {str(owner.get("uid")) for owner in document["metadata"].get("ownerReferences") or []}


def _is_same(found: Document, wanted: Document) -> bool:
    """Whether an existing object is the one that an earlier attempt of ours has created.

    With an owner, not by all of its content: the cluster normalises quantities, leaves out what is empty, and adds
    defaults. The uid of an owner belongs to one job, and to no other that had its name before.
    """
    if found["metadata"].get("deletionTimestamp"):
        return False
    if wanted["metadata"].get("ownerReferences"):
        has_labels = _contains(found["metadata"].get("labels") or {}, wanted["metadata"].get("labels") or {})
        return owners_of(wanted) == owners_of(found) and has_labels
    return found.get("data") == wanted.get("data") and _is_written(found, wanted, _PARTS_OF[""])


def _is_written(found: Document, wanted: Document, parts: tuple[str, ...]) -> bool:
    """Whether an object has the content that a document says, defaults of the cluster aside."""
    has_metadata = all(
        _contains(found["metadata"].get(name) or {}, wanted["metadata"].get(name) or {})
        for name in ("labels", "annotations")
    )
    return has_metadata and all(_contains(found.get(name), wanted[name]) for name in parts if name in wanted)


def _contains(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            _contains(found.get(key), value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(_contains(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return bool(found == wanted)
