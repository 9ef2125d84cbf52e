"""Leader election by a Lease: of several controllers one leads, the others stand by.

`Election` is a pure state machine: what the Lease says and the local clock in, the next write out. Clocks of machines
are never compared: a Lease has expired when this process has seen it unchanged for its whole duration. The leader
stops acting `renew_deadline_seconds` after its last successful renewal, which is before anyone else may take over.

Fencing: each takeover raises `leaseTransitions`, the leader's *generation*. It is written beside every desired state;
a leader that finds a higher one there has been deposed and writes nothing. All writes hold only for the version of
the object that was read, so a request of a deposed leader that is still under way fails as well.

Failure modes
    The API server does not answer: the leader stops acting at its deadline and goes on trying. The Lease is deleted:
    the next candidate creates it again; the generation continues from the highest that was seen.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable
from dataclasses import dataclass

from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document

log = logging.getLogger("elasticdl.controller")

LEASE_NAME = "training-job-controller"
_CONFLICTS = (404, 409)


@dataclass(frozen=True, kw_only=True)
class ElectionTiming:
    """A killed leader is replaced after `lease_seconds`. Requests take at most `attempt_seconds`, so that several
    renewals fit before the deadline.
    """

    lease_seconds: float = 10.0
    renew_deadline_seconds: float = 7.0
    retry_seconds: float = 2.0
    attempt_seconds: float = 2.0


@dataclass(frozen=True, kw_only=True)
class WriteLease:
    """Write this Lease; `version` "" creates it."""

    version: str
    generation: int
    is_takeover: bool


class Election:
    def __init__(self, identity: str, *, timing: ElectionTiming) -> None:
        self.identity = identity
        self.generation = 0
        self._timing = timing
        # The last content of the Lease, and when it was first seen here.
        self._seen: tuple[str, str] | None = None
        self._seen_at = 0.0
        self._leads_until = float("-inf")
        self._highest_generation = 0

    def leads(self, now: float) -> bool:
        return now < self._leads_until

    def observe(self, lease: Document | None, now: float) -> WriteLease | None:
        """Returns the write to attempt; None: another controller leads."""
        if lease is None:
            return WriteLease(version="", generation=self._highest_generation + 1, is_takeover=True)
        spec = lease.get("spec") or {}
        version = str(lease["metadata"]["resourceVersion"])
        transitions = int(spec.get("leaseTransitions") or 0)
        self._highest_generation = max(self._highest_generation, transitions)
        holder = str(spec.get("holderIdentity") or "")
        if holder == self.identity and self.generation == transitions:
            return WriteLease(version=version, generation=transitions, is_takeover=False)
        self._leads_until = float("-inf")
        seen = (holder, version)
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        duration = float(spec.get("leaseDurationSeconds") or self._timing.lease_seconds)
        if holder and now - self._seen_at < duration:
            return None
        return WriteLease(version=version, generation=self._highest_generation + 1, is_takeover=True)

    def written(self, write: WriteLease, *, asked_at: float) -> None:
        """The write succeeded. `asked_at`: when the request was sent; the Lease counts from there."""
        self.generation = self._highest_generation = write.generation
        self._leads_until = asked_at + self._timing.renew_deadline_seconds

    def resign(self) -> None:
        self._leads_until = float("-inf")

    def document(self, write: WriteLease, *, namespace: str, moment: datetime.datetime) -> Document:
        text = moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata: Document = {"name": LEASE_NAME, "namespace": namespace}
        if write.version:
            metadata["resourceVersion"] = write.version
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": self.identity,
                "leaseDurationSeconds": round(self._timing.lease_seconds),
                "leaseTransitions": write.generation,
                "renewTime": text,
                **({"acquireTime": text} if write.is_takeover else {}),
            },
        }


class LeaderElector:
    """Carries out what an `Election` decides. `on_change` is called when leadership is won or lost."""

    def __init__(
        self,
        cluster: Cluster,
        identity: str,
        *,
        clock: Callable[[], float],
        on_change: Callable[[bool], None],
        timing: ElectionTiming | None = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._on_change = on_change
        self._timing = timing or ElectionTiming()
        self.election = Election(identity, timing=self._timing)
        self._was_leader = False
        self.trouble = ""

    @property
    def is_leader(self) -> bool:
        return self.election.leads(self._clock())

    @property
    def generation(self) -> int:
        return self.election.generation

    async def run(self) -> None:
        """Runs until cancelled; then gives the Lease up, so that another controller need not wait for its end."""
        try:
            while True:
                await self._attempt()
                self._announce()
                await asyncio.sleep(self._timing.retry_seconds)
        finally:
            if self.is_leader:
                self.election.resign()
                await self._release()

    async def _attempt(self) -> None:
        try:
            await asyncio.wait_for(self._renew(), self._timing.attempt_seconds)
            self.trouble = ""
        except asyncio.TimeoutError:
            self._report("the API server does not answer")
        except ClusterError as error:
            if error.status in _CONFLICTS:
                return
            right = " (a role must grant get, create and update on leases.coordination.k8s.io)"
            self._report(f"{error.message}{right if error.status == 403 else ''}")
        except UserError as error:
            self._report(error.message)

    async def _renew(self) -> None:
        lease = await self._cluster.get("Lease", LEASE_NAME)
        asked_at = self._clock()
        write = self.election.observe(lease, asked_at)
        if write is None:
            return
        document = self.election.document(
            write, namespace=self._cluster.namespace, moment=datetime.datetime.now(datetime.timezone.utc)
        )
        replace_or_create = self._cluster.replace if write.version else self._cluster.create
        if await replace_or_create(document) is not None:
            self.election.written(write, asked_at=asked_at)

    def _report(self, trouble: str) -> None:
        if trouble != self.trouble:
            self.trouble = trouble
            log.warning("Cannot renew the Lease %s: %s", LEASE_NAME, trouble)

    def _announce(self) -> None:
        if self.is_leader != self._was_leader:
            self._was_leader = self.is_leader
            words = "Leading" if self.is_leader else "Standing by"
            log.info("%s as %s (generation %d)", words, self.election.identity, self.generation)
            self._on_change(self.is_leader)

    async def _release(self) -> None:
        try:
            await asyncio.wait_for(self._give_up(), self._timing.attempt_seconds)
        except (asyncio.TimeoutError, UserError) as error:
            log.info("The Lease %s was not released: %s", LEASE_NAME, error)

    async def _give_up(self) -> None:
        lease = await self._cluster.get("Lease", LEASE_NAME)
        if lease is not None and lease["spec"].get("holderIdentity") == self.election.identity:
            spec = {**lease["spec"], "holderIdentity": ""}
            await self._cluster.replace({**lease, "kind": "Lease", "spec": spec})
