"""Maps through losses, joins, removals and loads: no server serves a bucket that it lacks, and all ends balanced."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.ps.core.buckets import BUCKETS, NO_SERVER, BucketMap, first_map
from elasticdl.ps.replication.placement_planner import plan_moves, promote
from tests.random_histories import histories


class Servers:
    """Parameter servers that do what maps say, at once or late, and know what they really have."""

    def __init__(self, count: int, replicas: int) -> None:
        self.replicas = replicas
        self.living = set(range(count))
        self.staying = set(self.living)
        self.map = first_map(count, replicas=replicas)
        self.copied = 0
        self.filled: dict[int, int] = {}
        self.taken: set[int] = set()
        # By bucket: who has all that was acknowledged.
        self.have = [
            {made, kept} - {NO_SERVER} for made, kept in zip(self.map.primary, self.map.backup, strict=True)
        ]

    def publish(self, new: BucketMap) -> None:
        assert new.version == self.map.version + (new != self.map)
        old, self.map = self.map, new
        for bucket in range(BUCKETS):
            roles = {new.primary[bucket], new.backup[bucket]} - {NO_SERVER}
            assert roles <= self.living
            assert roles <= self.have[bucket], "a server has a role without having the bucket"
            changed = new.primary[bucket] != old.primary[bucket]
            if changed and old.primary[bucket] in self.living:
                assert new.handover[bucket] == old.primary[bucket]
            migrating = new.migrating.get(bucket, NO_SERVER)
            if old.migrating.get(bucket, NO_SERVER) != migrating:
                self.filled.pop(bucket, None)
            kept = roles | {new.handover.get(bucket, NO_SERVER)}
            if bucket in self.filled:
                kept.add(self.filled[bucket])
            self.have[bucket] &= kept
        self.taken &= set(new.handover)

    def plan(self, loads: list[float] | None = None) -> bool:
        before = self.map.version
        self.publish(
            plan_moves(
                self.map,
                self.staying & self.living,
                replicas=self.replicas,
                loads=loads,
                filled=self.filled,
                taken=self.taken,
            )
        )
        return self.map.version != before

    def fill(self, most: int = BUCKETS) -> bool:
        ready = [bucket for bucket in self.map.migrating if bucket not in self.filled][:most]
        for bucket in ready:
            assert self.map.primary[bucket] in self.have[bucket]
            self.filled[bucket] = self.map.migrating[bucket]
            self.have[bucket].add(self.map.migrating[bucket])
            self.copied += 1
        return bool(ready)

    def take(self, most: int = BUCKETS) -> bool:
        ready = [bucket for bucket in self.map.handover if bucket not in self.taken][:most]
        self.taken |= set(ready)
        return bool(ready)

    def lose(self, server: int) -> bool:
        """False: a bucket is gone altogether."""
        new = promote(self.map, {server})
        self.living.discard(server)
        for holders in self.have:
            holders.discard(server)
        self.filled = {bucket: to for bucket, to in self.filled.items() if to != server}
        if new is None:
            return False
        self.publish(new)
        return True

    def settle(self, loads: list[float] | None = None) -> None:
        for _ in range(1000):
            if not (self.plan(loads) | self.fill() | self.take()):
                return
        raise AssertionError("it never comes to rest")

    def check_even(self) -> None:
        there = self.staying & self.living
        assert not self.map.migrating
        assert not self.map.handover
        assert self.map.servers == there
        primaries = Counter(self.map.primary)
        counts = [primaries[server] for server in there]
        assert max(counts) - min(counts) <= 1
        if min(self.replicas, len(there)) > 1:
            copies = Counter(self.map.primary) + Counter(self.map.backup)
            assert NO_SERVER not in copies
            counts = [copies[server] for server in there]
            assert max(counts) - min(counts) <= 1
        else:
            assert set(self.map.backup) == {NO_SERVER}


_EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["lose", "join", "remove", "plan", "plan", "fill", "fill", "take"]), st.integers(0, 7)
    ),
    max_size=30,
)


@pytest.mark.soak
@given(st.integers(1, 6), st.sampled_from([1, 2]), _EVENTS)
@histories(25)
def test_any_events_end_balanced_and_no_server_serves_a_bucket_it_lacks(
    count: int, replicas: int, events: list[tuple[str, int]]
) -> None:
    servers = Servers(count, replicas)
    for event, which in events:
        if event == "lose" and which in servers.living:
            used = which in servers.map.servers
            if not servers.lose(which):
                # The job starts a new generation from its checkpoint; nothing more to show here.
                assert used
                return
        elif event == "join":
            servers.living.add(which)
            servers.staying.add(which)
        elif event == "remove" and len((servers.staying - {which}) & servers.living) > 0:
            servers.staying.discard(which)
        elif event == "plan" and servers.staying & servers.living:
            servers.plan()
        elif event == "fill":
            servers.fill(3)
        elif event == "take":
            servers.take(2)
    if servers.staying & servers.living:
        servers.settle()
        servers.check_even()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_balanced_map_is_unchanged(count: int) -> None:
    made = first_map(count)
    assert plan_moves(made, range(count)) is made


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_a_new_server_is_given_its_share_and_no_more_is_copied(count: int) -> None:
    servers = Servers(count, 2)
    servers.living.add(count)
    servers.staying.add(count)
    servers.settle()
    servers.check_even()
    # In a first map copies may differ by two.
    assert servers.copied <= -(-2 * BUCKETS // (count + 1)) + 1


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_only_buckets_of_leaving_server_are_copied(count: int, replicas: int) -> None:
    servers = Servers(count, replicas)
    held = len(servers.map.held_by(1))
    servers.staying.discard(1)
    servers.settle()
    servers.check_even()
    # With one server left there is no place for a backup.
    assert servers.copied == (0 if count == replicas else held)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_returned_server_gets_as_many_buckets_as_before(count: int) -> None:
    servers = Servers(count, 2)
    held = len(servers.map.held_by(0))
    assert servers.lose(0)
    servers.living.add(0)
    servers.settle()
    servers.check_even()
    assert servers.copied == held


def test_a_loss_is_answered_without_copying() -> None:
    servers = Servers(3, 2)
    before = servers.map
    assert servers.lose(1)
    for bucket in range(BUCKETS):
        if before.primary[bucket] == 1:
            assert servers.map.primary[bucket] == before.backup[bucket]
            assert servers.map.backup[bucket] == NO_SERVER
        else:
            assert servers.map.primary[bucket] == before.primary[bucket]


def test_without_a_copy_there_is_no_map() -> None:
    assert promote(first_map(2, replicas=1), {0}) is None
    assert promote(first_map(3), {0, 1}) is None
    assert promote(first_map(4), {0, 2}) is not None


def test_a_primary_lost_while_it_hands_over_leaves_one_copy_that_counts() -> None:
    servers = Servers(2, 2)
    servers.living.add(2)
    servers.staying.add(2)
    while not servers.map.handover:
        assert servers.plan() | servers.fill()
    bucket, source = next(iter(servers.map.handover.items()))
    primary = servers.map.primary[bucket]
    assert servers.lose(source)
    assert servers.map.primary[bucket] == primary
    assert servers.map.backup[bucket] == NO_SERVER
    assert bucket not in servers.map.handover


def test_few_buckets_are_copied_by_a_server_at_a_time() -> None:
    moving = plan_moves(first_map(2), range(3), at_once=4)
    assert set(Counter(moving.primary[bucket] for bucket in moving.migrating).values()) == {4}


@pytest.mark.soak
@pytest.mark.parametrize("replicas", [1, 2])
@given(data=st.data())
@histories(10)
def test_a_hot_server_is_relieved(replicas: int, data: st.DataObject) -> None:
    servers = Servers(4, replicas)
    loads = [1.0] * BUCKETS
    for bucket in data.draw(st.sets(st.integers(0, 63), min_size=4, max_size=20)):
        loads[bucket] = 20.0
    servers.settle(loads)

    def work(made: BucketMap) -> list[float]:
        return [sum(loads[bucket] for bucket in made.primaries_of(server)) for server in range(4)]

    # Nothing can be more even than the heaviest bucket allows.
    assert max(work(servers.map)) <= max(1.4 * sum(loads) / 4, sum(loads) / 4 + 20)
    assert max(work(servers.map)) < max(work(first_map(4)))


def test_loads_that_are_nearly_even_move_nothing() -> None:
    made = first_map(3)
    loads = [1.0 + 0.1 * (bucket % 3) for bucket in range(BUCKETS)]
    assert plan_moves(made, range(3), loads=loads) is made


def test_without_servers_everything_stays_where_it_is() -> None:
    current = first_map(2)
    assert plan_moves(current, []) is current
