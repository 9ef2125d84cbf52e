"""A cache of all objects of one kind: listed once in pages, then kept up to date by a watch.

What the watch guarantees (bookmarks, 410, backoff) is in `platforms/kubernetes/watch`. Added here: kinds that the
server does not serve (a CustomResourceDefinition that is not installed) are asked for now and then and count as empty,
and a missing right is reported with its verb and resource, and retried, since a role may be given later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.api_resources import resource_of
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document, Resource
from elasticdl.platforms.kubernetes.selectors import Selector
from elasticdl.platforms.kubernetes.watch import Change, Synced, watch

log = logging.getLogger("elasticdl.controller")

# How often a kind that is not served, or may not be listed, is asked for again.
_ABSENT_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Watched:
    """The objects that an informer caches. `transform`: reduces each object, to bound memory."""

    resource: str | Resource
    labels: Selector | None = None
    transform: Callable[[Document], Document] | None = None
    # Served only where its definition is installed.
    is_custom: bool = False

    @property
    def name(self) -> str:
        resource = resource_of(self.resource)
        return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


@dataclass(kw_only=True)
class Informer:
    """Reports every change to `on_change`, in order, first with the objects that are there."""

    cluster: Cluster
    watched: Watched
    on_change: Callable[[Watched, Change], None]
    on_sync: Callable[[], None]
    absent_seconds: float = _ABSENT_SECONDS
    is_synced: bool = False
    # Why there is nothing to report; empty if all is well.
    trouble: str = field(default="", init=False)

    async def run(self) -> None:
        """Runs until cancelled."""
        while True:
            try:
                await self._run()
            except ClusterError as error:
                self._report(missing_right(error, self.watched.name))
            except UserError as error:
                self._report(error.message)
            await asyncio.sleep(self.absent_seconds)

    async def _run(self) -> None:
        resource = resource_of(self.watched.resource)
        if self.watched.is_custom and not await self.cluster.is_served(resource):
            self._report(f"{self.watched.name} is not installed")
            self._synced()
            return
        async for change in watch(
            self.cluster,
            resource,
            labels=self.watched.labels,
            transform=self.watched.transform,
            is_large=True,
        ):
            if isinstance(change, Change):
                self.on_change(self.watched, change)
            elif isinstance(change, Synced):
                self.trouble = ""
                self._synced()

    def _synced(self) -> None:
        if not self.is_synced:
            self.is_synced = True
            self.on_sync()

    def _report(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            log.warning("Cannot watch %s: %s", self.watched.name, trouble)


def missing_right(error: ClusterError, resource: str, *, verbs: str = "verbs list and watch") -> str:
    """Returns what is missing; by default, with the verbs that a watch needs."""
    if error.status == 403:
        return f"a role must grant the {verbs} on {resource} ({error.message})"
    return error.message
