"""Two maps of one version: the server stays with the one that it has acted upon, and takes addresses from its equal."""

from __future__ import annotations

from dataclasses import replace

from elasticdl.ps.core.buckets import first_map
from elasticdl.ps.replication.peers import Peers
from elasticdl.ps.replication.replica_log import Routes

KNOWN = replace(first_map(2, replicas=2), version=5)


def peers() -> Peers:
    made = Peers(0, "zero")
    assert made.update_routes(Routes(map=KNOWN, addresses={1: "here:1"}))
    return made


def test_another_one_changes_nothing() -> None:
    made = peers()
    swapped = replace(KNOWN, primary=KNOWN.backup, backup=KNOWN.primary)
    assert not made.update_routes(Routes(map=swapped, addresses={1: "there:1"}))
    assert made.roles.map == KNOWN
    assert made.roles.serving.tolist() == [server == 0 for server in KNOWN.primary]


def test_the_same_one_with_other_addresses() -> None:
    made = peers()
    assert not made.update_routes(Routes(map=KNOWN, addresses={1: "there:1"}))
    assert made.roles.routes is not None
    assert made.roles.routes.addresses == {1: "there:1"}
