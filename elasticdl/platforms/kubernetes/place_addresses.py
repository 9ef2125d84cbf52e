"""Addresses of places: one Service for each place of a role, which selects the node that has the place now.

Only jobs whose nodes have to know each other get them: a Service is a cost for the cluster.

Failure modes
    A job of the same name whose job record has just been deleted: its Services are not ours. The new job waits until
    the cluster has removed them, but not indefinitely: before it has addresses, it can be neither watched nor stopped.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes import naming
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document, Pauses, owners_of, uid_of
from elasticdl.platforms.kubernetes.fenced_changes import ATTEMPT_SECONDS, FencedChanges
from elasticdl.platforms.kubernetes.manifests import place_selector, place_service
from elasticdl.platforms.kubernetes.pods.status import leaving

log = logging.getLogger("elasticdl.platforms")

# How long a Service of a deleted job may exist. The cluster removes it within seconds; a finalizer may take a minute.
REMOVAL_SECONDS = 120.0
# The API server's reason that an object of that name exists.
ALREADY_EXISTS = "AlreadyExists"


class PlaceAddresses:
    """`owner`: the job record, as the cluster has it."""

    def __init__(
        self,
        cluster: Cluster,
        spec: JobSpec,
        *,
        owner: Document,
        changes: FencedChanges,
        clock: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._spec = spec
        self._owner = owner
        self._changes = changes
        self._clock = clock
        # The number of the node to which this process has pointed each place, and the address of the place.
        self._pointed: dict[tuple[str, int], tuple[int, str]] = {}

    def is_addressed(self, role: str) -> bool:
        """Whether a role has addresses, by the JobSpec alone: the same for every master of the job."""
        return self._spec.addressed or (self._spec.program == "definition" and role == "ps")

    async def all(self, places: dict[str, int]) -> dict[str, list[str]]:
        """Returns the addresses of the first places of each role; nothing for a job without addresses."""
        if not any(self.is_addressed(role) for role in places):
            return {}
        wanted = [(role, place) for role, count in places.items() for place in range(count)]
        found = await asyncio.gather(*(self._point_when_free(role, place) for role, place in wanted))
        result: dict[str, list[str]] = {role: [] for role in places}
        for (role, _), address in zip(wanted, found, strict=True):
            result[role].append(address)
        return result

    async def point(self, role: str, place: int, *, index: int, errors_borne: int | None = None) -> str:
        """Points the place to the node of that number, and returns the address of the place."""
        pointed, address = self._pointed.get((role, place), (None, ""))
        if pointed != index:
            address = _address(await self._point_service(role, place, index, errors_borne))
            self._pointed[role, place] = index, address
        return address

    async def _point_when_free(self, role: str, place: int) -> str:
        """Raises `UserError` if another job's Service keeps the name."""
        pauses = Pauses(patience=math.inf)
        since: float | None = None
        while True:
            try:
                return await self.point(role, place, index=place)
            except ClusterError as error:
                if error.reason != ALREADY_EXISTS:
                    raise
                if since is None:
                    since = self._clock()
                    log.warning("%s Waiting for its end.", error.message)
                if self._clock() - since >= REMOVAL_SECONDS:
                    name = naming.place_service_name(self._spec, role, place)
                    raise UserError(
                        f"{error.message} It does not go, and the job cannot begin without its name.",
                        hint=f"`kubectl describe service {name} --namespace={self._cluster.namespace}` shows what "
                        "holds it. When it is gone, the job can be deleted and submitted again.",
                    ) from None
            await pauses.wait()

    async def _point_service(self, role: str, place: int, index: int, errors_borne: int | None) -> Document:
        """`ClusterError` with reason AlreadyExists while the Service of an earlier job has the name."""
        name = naming.place_service_name(self._spec, role, place)
        selector = {"spec": {"selector": place_selector(self._spec, role, index)}}
        through_errors = errors_borne is None
        point = partial(self._cluster.patch, "Service", name, selector, patience=ATTEMPT_SECONDS)
        service = await self._changes.apply(point, through_errors=through_errors)
        if service is None:
            new = place_service(self._spec, role, place, index=index, owner=self._owner)
            create = partial(self._cluster.create, new, errors_borne=errors_borne, patience=ATTEMPT_SECONDS)
            try:
                service = await self._changes.apply(create, through_errors=through_errors)
            except ClusterError as error:
                if error.reason != ALREADY_EXISTS:
                    raise
                # Created meanwhile by an earlier master, or by an attempt of ours whose response was lost.
                service = await self._changes.apply(point, through_errors=through_errors)
                if service is None:
                    raise
        if leaving(service) or not is_of_job(service, self._owner):
            because = "being deleted" if leaving(service) else "of a job that had this name before"
            raise ClusterError(f"Service {name} is {because}.", status=409, reason=ALREADY_EXISTS)
        return service


def is_of_job(item: Document, owner: Document) -> bool:
    """False for an object of an earlier job of this name, whose job record has been deleted."""
    owners = owners_of(item)
    return not owners or uid_of(owner) in owners


def _address(service: Document) -> str:
    return naming.address(str(service["spec"]["clusterIP"]), naming.NODE_PORT)
