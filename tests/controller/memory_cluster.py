"""A cluster in memory that lists, watches and writes as an API server does, and is in trouble when a test says so."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from elasticdl.platforms.kubernetes.api_resources import Resource, resource_of
from elasticdl.platforms.kubernetes.client import ClusterError, Document, Listing

_Key = tuple[str, str, str]
_WATCH_STEP_SECONDS = 0.5


class MemoryCluster:
    """`trouble`: awaited before each request with its verb; raises what the request is answered with."""

    namespace = "paddlecloud"

    def __init__(self) -> None:
        self.objects: dict[_Key, Document] = {}
        self.trouble: Callable[[str], Any] | None = None
        self._version = 100
        # Version, kind's plural, type and object. What is older than `_forgotten` cannot be watched any more.
        self._history: list[tuple[int, str, str, Document]] = []
        self._forgotten = 0

    # -- what happens in the cluster ---------------------------------------------------------------------------

    def put(self, document: Document, *, resource: Resource | None = None) -> Document:
        self._version += 1
        key = self._key(resource or resource_of(str(document["kind"])), document)
        is_new = key not in self.objects
        stored = copy.deepcopy(document)
        uid = stored["metadata"].get("uid") or f"uid-{self._version}"
        stored["metadata"] |= {"resourceVersion": str(self._version), "uid": uid}
        self.objects[key] = stored
        self._history.append((self._version, key[0], "ADDED" if is_new else "MODIFIED", stored))
        return copy.deepcopy(stored)

    def forget_history(self) -> None:
        """Watches that are not up to date have to begin again."""
        self._version += 1
        self._forgotten = self._version

    def names(self, kind: str) -> list[str]:
        plural = resource_of(kind).plural
        return sorted(name for there, _, name in self.objects if there == plural)

    # -- the client --------------------------------------------------------------------------------------------

    def all_namespaces(self) -> MemoryCluster:
        return self

    def in_namespace(self, namespace: str) -> MemoryCluster:
        return self

    def path(self, kind: str | Resource) -> str:
        return f"{resource_of(kind).group}/{resource_of(kind).plural}"

    async def is_served(self, resource: Resource) -> bool:
        await self._asked("get")
        return resource.group == "elasticdl.org"

    async def streams_lists(self) -> bool:
        return False

    async def list(
        self, kind: str | Resource, *, labels: Mapping[str, str] | None, transform: Any, **_: Any
    ) -> Listing:
        await self._asked("list")
        resource = resource_of(kind)
        items = (
            {**copy.deepcopy(document), "kind": resource.kind}
            for (plural, _, _), document in self.objects.items()
            if plural == resource.plural and _matches(document, labels)
        )
        return Listing(
            items=tuple(transform(item) if transform else item for item in items), version=str(self._version)
        )

    @contextlib.asynccontextmanager
    async def stream(self, path: str, query: Mapping[str, str], **_: Any) -> AsyncIterator[Any]:
        await self._asked("watch")
        selector = query.get("labelSelector", "")
        labels = dict(pair.split("=") for pair in selector.split(",") if pair)
        yield _Watch(self, path.partition("/")[2], int(query["resourceVersion"]), labels)

    async def events(self, plural: str, version: int, labels: Mapping[str, str]) -> AsyncIterator[str]:
        while True:
            await self._asked("watch")
            if version < self._forgotten:
                error = {"code": 410, "reason": "Expired", "message": "too old resource version"}
                yield json.dumps({"type": "ERROR", "object": error})
                return
            for at, there, kind, document in list(self._history):
                if at > version and there == plural and _matches(document, labels):
                    yield json.dumps({"type": kind, "object": document})
                version = max(version, at)
            await asyncio.sleep(_WATCH_STEP_SECONDS)

    async def get(self, kind: str, name: str, **_: Any) -> Document | None:
        await self._asked("get")
        plural = resource_of(kind).plural
        found = [self.objects[key] for key in self.objects if (key[0], key[2]) == (plural, name)]
        return copy.deepcopy(found[0]) if found else None

    async def create(self, document: Document, **_: Any) -> Document:
        await self._asked("create")
        if self._key(resource_of(str(document["kind"])), document) in self.objects:
            raise ClusterError("it exists already", status=409, reason="AlreadyExists")
        return self.put(document)

    async def replace(
        self, document: Document, *, resource: Resource | None = None, subresource: str = "", **_: Any
    ) -> Document:
        await self._asked("update")
        resource = resource or resource_of(str(document["kind"]))
        before = self.objects[self._key(resource, document)]
        if before["metadata"]["resourceVersion"] != document["metadata"].get("resourceVersion"):
            raise ClusterError("it has changed", status=409, reason="Conflict")
        changes = {subresource: document[subresource]} if subresource else document
        return self.put({**before, **changes, "metadata": before["metadata"]}, resource=resource)

    async def _asked(self, verb: str) -> None:
        if self.trouble is not None:
            await self.trouble(verb)

    def _key(self, resource: Resource, document: Document) -> _Key:
        metadata = document["metadata"]
        return resource.plural, str(metadata.get("namespace") or ""), str(metadata["name"])


class _Watch:
    def __init__(self, cluster: MemoryCluster, plural: str, version: int, labels: Mapping[str, str]) -> None:
        self._events = cluster.events(plural, version, labels)

    def aiter_lines(self) -> AsyncIterator[str]:
        return self._events


def _matches(document: Document, labels: Mapping[str, str] | None) -> bool:
    there = document["metadata"].get("labels") or {}
    return all(there.get(key) == value for key, value in (labels or {}).items())
