"""List and watch: all objects of a scope, then every change of them, without a gap.

A watch is one long response of the API server, a line for each change. It ends often: after some minutes, when the
server restarts, when a connection breaks. It then resumes at the last version seen. Bookmarks keep that version recent
while nothing of interest changes. Where the server no longer has it (410), all objects are listed again and compared
with the known ones, so that the caller learns of every object that is there and of every one that is gone, though not
of all states in between. An object that was created and deleted in between is never reported; each list is marked by
`Asked` and `Synced`, for callers that know what should be in it. Backoff limits the requests, also where a proxy ends
every watch at once: it is reset only by an event.

Of many objects (`is_large`) the list is part of the watch where the server can do that (WatchList, on by default in
Kubernetes 1.32): it then sends one object after the other, instead of holding all of them in memory, and marks the last
one by a bookmark. Servers before that, and those that refuse it, are asked for a list in pages.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from elasticdl.platforms.kubernetes.api_resources import resource_of
from elasticdl.platforms.kubernetes.client import (
    MAY_NOT,
    Cluster,
    ClusterError,
    Document,
    Pauses,
    Resource,
    TransportError,
    uid_of,
)
from elasticdl.platforms.kubernetes.selectors import Selector, selector_query

log = logging.getLogger("elasticdl.platforms")

# The server ends a watch after this long, so that connections do not pile up at one of several servers.
_WATCH_SECONDS = 300
# The server sends a bookmark every minute; after a longer silence the connection is lost.
_SILENCE_SECONDS = 90.0
_EXPIRED = 410
# Parameters that the server does not know, or whose feature is off.
_INVALID = (400, 422)
# A watch that begins with all objects, as of now.
_WITH_OBJECTS = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}

# Namespace ("" in cluster scope) and name.
_Key = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class Change:
    """An object that is new or different; or its last state, if it is gone."""

    name: str
    document: Document
    gone: bool = False

    @property
    def namespace(self) -> str:
        """ "" in cluster scope."""
        return _key(self.document)[0]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A list of all objects has been requested: at the beginning, and after each gap."""


@dataclass(frozen=True, kw_only=True)
class Synced:
    """All objects of the list have been reported."""


async def watch(
    cluster: Cluster,
    kind: str | Resource,
    *,
    labels: Selector | None = None,
    fields: Selector | None = None,
    transform: Callable[[Document], Document] | None = None,
    is_large: bool = False,
) -> AsyncIterator[Change | Asked | Synced]:
    """Runs indefinitely. Raises `ClusterError` only if the first list is forbidden.

    `transform`: what is kept and reported of each object; it must keep its metadata. `is_large`: there may be thousands
    of objects.
    """
    known: dict[_Key, Document] = {}
    kind_name = resource_of(kind).kind
    version = ""
    is_synced = False
    pauses = Pauses(patience=math.inf)
    while True:
        # The objects that the watch begins with, until all of them are there. None: it begins with changes.
        initial: list[Document] | None = None
        try:
            if not version:
                yield Asked()
                if is_large and await cluster.streams_lists():
                    initial = []
                else:
                    listing = await cluster.list(kind, labels=labels, fields=fields, transform=transform)
                    for change in _differences(known, listing.items):
                        yield change
                    version = listing.version
                    is_synced = True
                    yield Synced()
            query = {
                **selector_query(labels, fields),
                "watch": "true",
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(_WATCH_SECONDS),
                **({"resourceVersion": version} if initial is None else _WITH_OBJECTS),
            }
            async with cluster.stream(cluster.path(kind), query, read_seconds=_SILENCE_SECONDS) as response:
                async for line in response.aiter_lines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _error(event["object"])
                    is_bookmark = event["type"] == "BOOKMARK"
                    if initial is not None and not is_bookmark:
                        initial.append(_kept(event, kind_name, transform))
                        continue
                    if initial is not None:
                        if not _ends_objects(event["object"]):
                            continue
                        for change in _differences(known, tuple(initial)):
                            yield change
                        initial = None
                        is_synced = True
                        yield Synced()
                    pauses = Pauses(patience=math.inf)
                    version = event["object"]["metadata"]["resourceVersion"]
                    if not is_bookmark:
                        kept = _kept(event, kind_name, transform)
                        yield _change(known, kept, event["type"] == "DELETED")
        except ClusterError as error:
            if initial is not None and error.status in _INVALID:
                log.info(
                    "Listing %s in pages: the server refuses to stream lists (%s)", kind_name, error.message
                )
                cluster.refuse_streamed_lists()
                continue
            if error.status in MAY_NOT and not is_synced:
                raise
            if error.status == _EXPIRED:
                log.info("Listing %s again: the watch is too far behind (%s)", kind_name, error.message)
                version = ""
            else:
                log.info("Resuming the watch of %s: it has ended (%s)", kind_name, error.message)
        except (TransportError, json.JSONDecodeError) as error:
            # The last line before a server is killed may be incomplete.
            log.info("Resuming the watch of %s: it broke (%s: %s)", kind_name, type(error).__name__, error)
        await pauses.wait()


def _kept(
    event: dict[str, Any], kind_name: str, transform: Callable[[Document], Document] | None
) -> Document:
    # Objects of a list do not name their kind.
    item = {**event["object"], "kind": kind_name}
    return transform(item) if transform else item


def _ends_objects(bookmark: dict[str, Any]) -> bool:
    """Whether all objects have been sent that there were when the watch began."""
    annotations = bookmark["metadata"].get("annotations") or {}
    return annotations.get("k8s.io/initial-events-end") == "true"


def _differences(known: dict[_Key, Document], items: tuple[Document, ...]) -> list[Change]:
    changes = []
    present = {_key(item): item for item in items}
    for key in [key for key in known if key not in present]:
        changes.append(Change(name=key[1], document=known.pop(key), gone=True))
    for key, item in present.items():
        before = known.get(key)
        if before is not None and uid_of(before) != uid_of(item):
            changes.append(Change(name=key[1], document=before, gone=True))
        if before is None or _version(before) != _version(item):
            known[key] = item
            changes.append(Change(name=key[1], document=item))
    return changes


def _change(known: dict[_Key, Document], item: Document, gone: bool) -> Change:
    key = _key(item)
    if gone:
        known.pop(key, None)
    else:
        known[key] = item
    return Change(name=key[1], document=item, gone=gone)


def _key(item: Document) -> _Key:
    return str(item["metadata"].get("namespace") or ""), str(item["metadata"]["name"])


def _version(item: Document) -> str:
    return str(item["metadata"].get("resourceVersion"))


def _error(status: dict[str, Any]) -> ClusterError:
    return ClusterError(
        str(status.get("message")),
        status=int(status.get("code") or 0),
        reason=str(status.get("reason") or ""),
    )
