"""Writes the record of a job, for the one master that owns it.

A master whose machine is disconnected does not know that it was replaced. When the machine is connected again, its
writes would be outdated, and the nodes that it would kill work for its successor. So a master writes the uid of its pod
into the record first, and every later write holds only for the version of the record that it knows. A master that finds
another uid there was replaced, and exits silently.

The cluster decides which of two masters may claim the record: it has one pod of the master's name at a time. No other
pod claims the record; and a claim holds only if there was no other claim since the pod was read. A pod whose own record
was deleted may exist for a while beside a new job of that name: it goes with its record, and does not touch the new
one.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from elasticdl.errors import UserError
from elasticdl.jobs.job_record import JobRecord, master_entry
from elasticdl.platforms.kubernetes import naming
from elasticdl.platforms.kubernetes.client import MAY_NOT, Cluster, ClusterError, Document, uid_of
from elasticdl.platforms.kubernetes.manifests import WRITTEN_AT

log = logging.getLogger("elasticdl.master")

# The object has another version than the one that the write was for.
_CHANGED = 409


class Replaced(UserError):
    """There is another master of the job: what becomes of the job is for that one to say."""

    def __init__(self, job: str) -> None:
        super().__init__(
            f"There is another master of job {job}: what has become of the job is for it to say."
        )


class RecordWriter:
    """`uid`: of the master's pod. A pod that does not know its own cannot be distinguished from others like it."""

    def __init__(self, cluster: Cluster, job: str, *, uid: str) -> None:
        self.job = job
        self.uid = uid
        self._cluster = cluster
        self._name = naming.record_name(job)
        # The uid of the record's master, as long as that is this one.
        self._written = uid
        self._version = ""

    async def claim(self) -> Document | None:
        """The record, which is this master's from now on. None if the job has been deleted."""
        while True:
            record = await self._cluster.get("ConfigMap", self._name)
            if record is None:
                return None
            pod = await self._pod()
            if pod is not None and not self._belongs_to(record, pod):
                return None
            self._version = str(record["metadata"]["resourceVersion"])
            try:
                return await self._patch(master_entry(self.uid))
            except ClusterError as error:
                if error.status in MAY_NOT:
                    raise
                if error.status != _CHANGED:
                    # No room in it, say. What cannot be written is no reason not to go on with the job.
                    log.warning("The job's record could not be claimed: %s", error)
                    self._written = _master_of(record)
                    return record

    async def check(self) -> None:
        """Raises `Replaced` unless this is the pod that has the name of the job's master."""
        await self._pod()

    async def _pod(self) -> Document | None:
        """This one, if it knows which it is. Raises `Replaced` if another has the name of the job's master."""
        if not self.uid:
            return None
        pod = await self._cluster.get("Pod", naming.master_name(self.job))
        if pod is None or pod["metadata"]["uid"] != self.uid:
            raise Replaced(self.job)
        return pod

    def _belongs_to(self, record: Document, pod: Document) -> bool:
        """A pod that was made from a file has no record for its owner, though it may have another owner."""
        records = {
            owner.get("uid")
            for owner in pod["metadata"].get("ownerReferences") or []
            if (owner.get("kind"), owner.get("name")) == ("ConfigMap", self._name)
        }
        return not records or uid_of(record) in records

    async def read(self) -> Document | None:
        """The record as it is now. None if the job has been deleted."""
        record = await self._cluster.get("ConfigMap", self._name)
        if record is not None:
            self.see(record)
            self._version = str(record["metadata"]["resourceVersion"])
        return record

    def see(self, record: Document) -> None:
        """Raises `Replaced` if the record says so."""
        if _master_of(record) != self._written:
            raise Replaced(self.job)

    async def write(self, data: Mapping[str, str | None]) -> None:
        """Keys and their texts; None removes one."""
        while True:
            try:
                await self._patch(data)
                return
            except ClusterError as error:
                if error.status != _CHANGED:
                    raise
            # The desired state was written; or this is not the master any more.
            if await self.read() is None:
                return

    async def _patch(self, data: Mapping[str, str | None]) -> Document | None:
        now = self._cluster.now
        metadata = {
            "resourceVersion": self._version,
            "annotations": {WRITTEN_AT: None if now is None else str(int(now))},
        }
        changes = {"metadata": metadata, "data": {**data}}
        record = await self._cluster.patch("ConfigMap", self._name, changes)
        if record is not None:
            self._version = str(record["metadata"]["resourceVersion"])
        return record


def _master_of(record: Document) -> str:
    return JobRecord.of(record.get("data")).master_uid
