"""Removes everything that is left of a job: its record, and the objects that the record owns.

Objects of another job, which may have got the name meanwhile, stay.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from elasticdl.catalog.kubernetes.pod_removal import await_deletion
from elasticdl.catalog.kubernetes.submission import OWNED_KINDS
from elasticdl.catalog.kubernetes.timing import Timing
from elasticdl.catalog.observer import JobObserver
from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.client import Cluster, Document, owners_of, uid_of
from elasticdl.platforms.kubernetes.naming import JOB_LABEL, record_name


async def remove_job(
    cluster: Cluster, name: str, *, record_uid: str, observer: JobObserver, timing: Timing
) -> None:
    """Returns when all objects are gone."""
    labels = {JOB_LABEL: name}
    found = [(kind, item) for kind in OWNED_KINDS for item in (await cluster.list(kind, labels=labels)).items]
    await cluster.delete("ConfigMap", record_name(name), uid=record_uid)
    # What was created with kubectl has no owner: it was there before, and belongs to the next job once there is one.
    there = await cluster.get("ConfigMap", record_name(name))
    name_is_taken = there is not None and uid_of(there) != record_uid
    unowned = {uid_of(item) for _, item in found if not owners_of(item) and not name_is_taken}

    def belongs(item: Document) -> bool:
        return record_uid in owners_of(item) or uid_of(item) in unowned

    # The garbage collector removes what the record owned, but not at once.
    for kind, item in found:
        if belongs(item):
            await cluster.delete(kind, item["metadata"]["name"], uid=uid_of(item))
    await await_deletion(cluster, labels, those=belongs, observer=observer, timing=timing)
    await _await_rest(cluster, name, belongs, timing)


async def _await_rest(
    cluster: Cluster, name: str, belongs: Callable[[Document], bool], timing: Timing
) -> None:
    deadline = time.monotonic() + timing.answer_timeout_seconds
    labels = {JOB_LABEL: name}
    for kind in OWNED_KINDS:
        while left := [item for item in (await cluster.list(kind, labels=labels)).items if belongs(item)]:
            if time.monotonic() > deadline:
                names = ", ".join(item["metadata"]["name"] for item in left)
                raise UserError(f"Of job {name} this does not go: {kind} {names}.")
            await asyncio.sleep(timing.poll_seconds)
