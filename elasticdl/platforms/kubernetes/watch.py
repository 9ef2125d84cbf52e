"""The objects of a cluster as they change: everything there is, then everything that happens, without a gap.

A watch is a long answer of the API server, one line a change. It ends all the time: after some minutes, when the server
restarts, when a connection breaks. It is then taken up where it was; and where the server does not remember so far back
(410), all is listed anew and compared with what was known, so that whoever listens hears of every object that is there
and of every one that is gone, if not of all its states in between. Of one that came and went in between nothing is
heard here; so each list is marked, for those who know what should be in it. While nothing changes, next to nothing is
asked: also where somebody in between ends every watch at once, as pauses grow until one has told something.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from elasticdl.platforms.kubernetes.client import (
    MAY_NOT,
    Cluster,
    ClusterError,
    Document,
    Pauses,
    http_library,
    selection,
    uid_of,
)

log = logging.getLogger("elasticdl.platforms")

# The server ends a watch after this long, so that connections do not pile up at one of several servers.
_WATCH_SECONDS = 300
# The server sends a bookmark every minute. Who hears nothing for longer has lost the connection without noticing.
_SILENCE_SECONDS = 90.0
_EXPIRED = 410


@dataclass(frozen=True, kw_only=True)
class Change:
    """An object that is new or different; or its last state, if it is gone."""

    name: str
    document: Document
    gone: bool = False


@dataclass(frozen=True, kw_only=True)
class Asked:
    """All that is there is being asked for: at the beginning, and whenever there was a gap."""


@dataclass(frozen=True, kw_only=True)
class Synced:
    """All that was there when it was asked for has been told."""


async def watch(
    cluster: Cluster,
    kind: str,
    *,
    labels: Mapping[str, str] | None = None,
    fields: Mapping[str, str] | None = None,
) -> AsyncIterator[Change | Asked | Synced]:
    """For ever. Raises `ClusterError` only if one may not look at all."""
    known: dict[str, Document] = {}
    version = ""
    synced = False
    pauses = Pauses(patience=math.inf)
    http = http_library()
    while True:
        try:
            if not version:
                yield Asked()
                listing = await cluster.list(kind, labels=labels, fields=fields)
                for change in _differences(known, listing.items):
                    yield change
                version = listing.version
                synced = True
                yield Synced()
            query = {
                **selection(labels, fields),
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": version,
                "timeoutSeconds": str(_WATCH_SECONDS),
            }
            async with cluster.stream(cluster.path(kind), query, read_seconds=_SILENCE_SECONDS) as answer:
                async for line in answer.aiter_lines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _error(event["object"])
                    pauses = Pauses(patience=math.inf)
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield _change(known, {**event["object"], "kind": kind}, event["type"] == "DELETED")
        except ClusterError as error:
            if error.status in MAY_NOT and not synced:
                raise
            if error.status == _EXPIRED:
                log.info("The watch of %s is too far behind (%s); all is listed anew.", kind, error.message)
                version = ""
            else:
                log.info("The watch of %s has ended (%s); it is taken up again.", kind, error.message)
        except (http.TransportError, http.StreamError, json.JSONDecodeError) as error:
            # The line that was being sent when the server was killed may be cut.
            log.info("The watch of %s has broken off (%s: %s).", kind, type(error).__name__, error)
        await pauses.wait()


def _differences(known: dict[str, Document], items: tuple[Document, ...]) -> list[Change]:
    changes = []
    present = {item["metadata"]["name"]: item for item in items}
    for name in [name for name in known if name not in present]:
        changes.append(Change(name=name, document=known.pop(name), gone=True))
    for name, item in present.items():
        before = known.get(name)
        if before is not None and uid_of(before) != uid_of(item):
            changes.append(Change(name=name, document=before, gone=True))
        if before is None or _version(before) != _version(item):
            known[name] = item
            changes.append(Change(name=name, document=item))
    return changes


def _change(known: dict[str, Document], item: Document, gone: bool) -> Change:
    name = item["metadata"]["name"]
    if gone:
        known.pop(name, None)
    else:
        known[name] = item
    return Change(name=name, document=item, gone=gone)


def _version(item: Document) -> str:
    return str(item["metadata"].get("resourceVersion"))


def _error(status: dict[str, Any]) -> ClusterError:
    return ClusterError(
        str(status.get("message")),
        status=int(status.get("code") or 0),
        reason=str(status.get("reason") or ""),
    )
