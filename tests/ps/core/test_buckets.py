"""The first map, the buckets of dense arrays, and a map on the wire."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps.core.buckets import BUCKETS, NO_SERVER, BucketMap, dense_buckets, first_map
from elasticdl.wire import master_pb2


@given(st.integers(1, 40))
def test_the_first_map_is_even_and_every_backup_is_elsewhere(servers: int) -> None:
    made = first_map(servers)
    primaries, backups = Counter(made.primary), Counter(made.backup)
    assert set(primaries) == set(range(servers))
    assert max(primaries.values()) - min(primaries.values()) <= 1
    if servers == 1:
        assert set(made.backup) == {NO_SERVER}
    else:
        assert max(backups.values()) - min(backups.values()) <= 1
        assert all(one != other for one, other in zip(made.primary, made.backup, strict=True))


def test_first_map_without_replicas_has_no_backups() -> None:
    assert set(first_map(3, replicas=1).backup) == {NO_SERVER}


def test_servers_may_have_any_numbers() -> None:
    assert first_map([5, 2]).servers == {2, 5}


def test_dense_arrays_are_spread_over_any_number_of_servers() -> None:
    sizes = {f"layer-{number}": 1000 for number in range(64)}
    buckets = dense_buckets(sizes)
    for servers in (2, 3, 4, 7):
        counts = Counter(first_map(servers).primary[bucket] for bucket in buckets.values())
        assert max(counts.values()) - min(counts.values()) <= 2


def test_the_two_largest_arrays_are_half_of_all_buckets_apart() -> None:
    assert dense_buckets({"small": 1, "large": 100, "larger": 200}) == {
        "larger": 0,
        "large": 128,
        "small": 192,
    }


def test_servers_have_about_as_many_bytes() -> None:
    sizes = {"a": 100, "b": 50, "c": 50, "d": 25, "e": 25, "f": 30, "g": 20}
    buckets = dense_buckets(sizes)
    for servers, most in ((2, 150), (4, 100)):
        held = Counter[int]()
        for name, bucket in buckets.items():
            held[first_map(servers).primary[bucket]] += sizes[name]
        assert max(held.values()) == most


def test_the_buckets_of_arrays_do_not_depend_on_their_order() -> None:
    sizes = {"b": 4, "a": 4, "c": 8}
    assert dense_buckets(sizes) == dense_buckets(dict(reversed(sizes.items())))


def test_more_arrays_than_buckets_share_them() -> None:
    counts = Counter(dense_buckets({str(number): 8 for number in range(2 * BUCKETS)}).values())
    assert set(counts.values()) == {2}


def test_a_map_survives_the_wire() -> None:
    made = first_map(3)
    moving = BucketMap(
        version=7, primary=made.primary, backup=made.backup, migrating={3: 2}, handover={200: 1}
    )
    sent = master_pb2.BucketMap.FromString(moving.to_wire().SerializeToString())
    assert BucketMap.from_wire(sent) == moving


def test_invalid_map_message_is_rejected() -> None:
    message = first_map(2).to_wire()
    message.backup[0] = message.primary[0]
    with pytest.raises(ValueError, match="backup too"):
        BucketMap.from_wire(message)
    with pytest.raises(ValueError, match="256 buckets"):
        BucketMap.from_wire(master_pb2.BucketMap(version=1, primary=[0], backup=[-1]))
