"""Waiting for an API server that does not answer, for callers that wait for the end of a job anyway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from elasticdl.catalog.observer import JobObserver
from elasticdl.platforms.kubernetes.client import ClusterAway

_Result = TypeVar("_Result")


async def outlast_outage(ask: Callable[[], Awaitable[_Result]], observer: JobObserver) -> _Result:
    """Repeats the request until the cluster answers. The client does the backoff; the observer gets one note."""
    noted = False
    while True:
        try:
            return await ask()
        except ClusterAway as error:
            if not noted:
                observer.note(f"{error.message} Waiting for it.")
            noted = True
