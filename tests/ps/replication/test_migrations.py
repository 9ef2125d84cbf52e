"""A bucket is copied once to the server that is being filled, and again if that server has forgotten it meanwhile.

Servers see the newest map, not every map. One that gives a filling up and one that begins it again may come between two
that a primary sees, while the server that was being filled has seen them all.
"""

from __future__ import annotations

from dataclasses import replace

from elasticdl.ps.core.buckets import BUCKETS, BucketMap
from elasticdl.ps.replication.placement_planner import plan_moves, promote
from elasticdl.ps.replication.replica_log import BucketCopy, Roles, Routes

PLAIN = BucketMap(version=1, primary=(0,) * BUCKETS, backup=(1,) * BUCKETS)
FILLING = replace(PLAIN, version=2, migrating={5: 2}, migrating_since={5: 2})


def primary(*maps: BucketMap) -> Roles:
    """That has copied what the first of these maps wants, and has seen the others since."""
    roles = Roles(0)
    for number, seen in enumerate(maps):
        roles.update_routes(Routes(map=seen))
        if number == 0:
            for bucket, peer, _ in roles.to_migrate():
                roles.copy(bucket, BucketCopy(peer=peer, incarnation="", position=1))
    return roles


def test_while_it_goes_on_it_is_copied_once() -> None:
    assert primary(FILLING).to_migrate() == []
    later = primary(FILLING, replace(FILLING, version=7))
    assert later.to_migrate() == []
    assert later.targets[2][5]


def test_given_up_and_begun_again_unseen_it_is_copied_again() -> None:
    roles = primary(FILLING, replace(FILLING, version=7, migrating_since={5: 6}))
    assert roles.to_migrate() == [(5, 2, None)]
    # And gets no entries of the bucket before it has that.
    assert 2 not in roles.targets


def test_a_backup_that_was_one_no_more_unseen_is_given_it_again() -> None:
    backed_up = replace(PLAIN, version=3, backup=(2,) * BUCKETS)
    roles = primary(FILLING, backed_up, replace(FILLING, version=7, migrating_since={5: 6}))
    assert roles.to_migrate() == [(5, 2, None)]


def test_map_has_version_at_which_each_migration_began() -> None:
    """A third server comes, is lost, and comes back: every filling has the version of the map that it began with."""
    began = plan_moves(replace(PLAIN, backup=(1,) * BUCKETS), range(3))
    assert began.migrating
    assert set(began.migrating_since.values()) == {began.version}
    assert began.migrating_since.keys() == began.migrating.keys()
    # Some are through, others begin.
    bucket, server = next(iter(began.migrating.items()))
    on = plan_moves(began, range(3), filled={bucket: server})
    for other in on.migrating:
        assert on.migrating_since[other] == (began.version if other in began.migrating else on.version)
    lost = promote(began, {2})
    assert lost is not None
    again = plan_moves(lost, range(3))
    assert set(again.migrating_since.values()) == {again.version}
    assert BucketMap.from_wire(again.to_wire()) == again
