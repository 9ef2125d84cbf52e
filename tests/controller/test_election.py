"""Leader election by Lease, with a fake clock."""

from __future__ import annotations

import datetime

from elasticdl.controller.election import Election, ElectionTiming
from elasticdl.platforms.kubernetes.client import Document

TIMING = ElectionTiming(lease_seconds=10.0, renew_deadline_seconds=7.0)
MOMENT = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


def lease_of(
    election: Election, *, now: float, before: Document | None = None, version: str = "1"
) -> Document:
    write = election.observe(before, now)
    assert write is not None
    document = election.document(write, namespace="default", moment=MOMENT)
    document["metadata"]["resourceVersion"] = version
    election.written(write, asked_at=now)
    return document


def test_first_controller_leads_until_its_deadline() -> None:
    one = Election("one", timing=TIMING)
    lease_of(one, now=0.0)
    assert one.leads(6.9)
    assert not one.leads(7.0)


def test_second_controller_is_on_standby_while_lease_is_renewed() -> None:
    one, two = Election("one", timing=TIMING), Election("two", timing=TIMING)
    lease = lease_of(one, now=0.0)
    assert two.observe(lease, 0.0) is None
    lease = lease_of(one, now=5.0, before=lease, version="2")
    assert two.observe(lease, 9.0) is None
    assert two.observe(lease, 18.9) is None


def test_takeover_comes_after_the_deadline_of_the_old_leader_and_raises_the_generation() -> None:
    one, two = Election("one", timing=TIMING), Election("two", timing=TIMING)
    lease = lease_of(one, now=0.0)
    assert two.observe(lease, 0.0) is None
    lease = lease_of(two, now=10.0, before=lease, version="2")
    assert not one.leads(10.0)
    assert two.leads(10.0)
    assert two.generation == one.generation + 1
    # The old leader sees that it has been deposed.
    assert one.observe(lease, 10.5) is None


def test_released_lease_is_taken_at_once() -> None:
    one, two = Election("one", timing=TIMING), Election("two", timing=TIMING)
    lease = lease_of(one, now=0.0)
    lease["spec"]["holderIdentity"] = ""
    assert two.observe(lease, 0.1) is not None


def test_deleted_lease_is_created_with_a_higher_generation() -> None:
    one = Election("one", timing=TIMING)
    lease_of(one, now=0.0)
    write = one.observe(None, 1.0)
    assert write is not None
    assert (write.version, write.generation) == ("", 2)
