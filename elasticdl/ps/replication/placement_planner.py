"""Plans the next map: when a server is lost, when servers join or drain, when one is hot. Pure decisions.

`promote` reacts to a loss at once, with the present replicas. `plan_moves` is called repeatedly while buckets migrate:
each time it derives from the present map where everything should end, and returns the next step on the way there, or
the same map if there is nothing to do. It uses only the map and the reported state, so a restarted master can continue
in the middle.

A step changes a bucket in one of these ways, none of which can lose an acknowledged update:

    a migration begins    the primary copies the bucket to a server, no role changes
    a migration ends      that server has a role from now on, and a superfluous one has none
    roles are swapped     between servers that hold the bucket; nothing is copied

Where the primary changes and lives, it hands over.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from elasticdl.ps.core.buckets import BUCKETS, NO_SERVER, BucketMap

# How many buckets a server copies at a time: enough to keep it busy, few enough that a plan may still change.
FILLINGS_AT_ONCE = 8
# Measured loads are never quite even, and never the same twice: differences of this part of the mean are left alone.
_TOLERANCE = 0.2
# Exchanges of a hot bucket for a cold one that are planned at a time.
_EXCHANGES = 4


def promote(current: BucketMap, lost: Collection[int]) -> BucketMap | None:
    """The map without servers that are gone: backups take over. None: of some bucket no copy is left."""
    gone = frozenset(lost)
    primary, backup = list(current.primary), list(current.backup)
    migrating, handover = dict(current.migrating), dict(current.handover)
    for bucket in range(BUCKETS):
        if primary[bucket] in gone:
            if backup[bucket] in gone or backup[bucket] == NO_SERVER:
                return None
            primary[bucket], backup[bucket] = backup[bucket], NO_SERVER
            # A migration's target has a part of what the lost primary had.
            migrating.pop(bucket, None)
            handover.pop(bucket, None)
        elif handover.get(bucket, NO_SERVER) in gone:
            # It may have sent the new primary and the backup different amounts. All that was acknowledged they both
            # have; one of them counts, the other is copied again.
            backup[bucket] = NO_SERVER
            del handover[bucket]
        elif backup[bucket] in gone:
            backup[bucket] = NO_SERVER
        if migrating.get(bucket, NO_SERVER) in gone:
            del migrating[bucket]
    return _next(current, primary, backup, migrating, handover)


def plan_moves(
    current: BucketMap,
    servers: Collection[int],
    *,
    replicas: int = 2,
    loads: Sequence[float] | None = None,
    filled: Mapping[int, int] | None = None,
    taken: Collection[int] = (),
    at_once: int = FILLINGS_AT_ONCE,
) -> BucketMap:
    """The next map on the way to an even distribution over `servers`, or the same one if it is there.

    `servers` are those that are there and shall stay; others in the map live, and shall go (those that do not live are
    for `promote`). `loads`: by bucket, in any unit; without them all buckets are alike. `filled`: by bucket, the
    servers that primaries have reported as complete; `taken`: the buckets whose new primaries have been handed them.
    Without servers there is no target to move to: the map stays as it is.
    """
    if not servers:
        return current
    done = filled or {}
    target = _Target(current, sorted(servers), replicas, loads)
    primary, backup = list(current.primary), list(current.backup)
    migrating = {bucket: server for bucket, server in current.migrating.items() if server in target.servers}
    handover = {bucket: server for bucket, server in current.handover.items() if bucket not in taken}
    busy = Counter(primary[bucket] for bucket in migrating if done.get(bucket) != migrating[bucket])
    for bucket in range(BUCKETS):
        if bucket in handover:
            continue
        holders = {primary[bucket], backup[bucket]} - {NO_SERVER}
        being_filled = migrating.get(bucket)
        if being_filled is not None and done.get(bucket) == being_filled:
            holders.add(being_filled)
        wanted = target.holders[bucket]
        if wanted <= holders:
            if target.primary[bucket] != primary[bucket]:
                handover[bucket] = primary[bucket]
                primary[bucket] = target.primary[bucket]
            backup[bucket] = next(iter(wanted - {primary[bucket]}), NO_SERVER)
            migrating.pop(bucket, None)
        elif being_filled in holders:
            # Both copies are to go, and this is the first that replaces one.
            assert being_filled is not None
            backup[bucket] = being_filled
            del migrating[bucket]
        elif being_filled is None and busy[primary[bucket]] < at_once:
            migrating[bucket] = min(wanted - holders)
            busy[primary[bucket]] += 1
    return _next(current, primary, backup, migrating, handover)


def _next(
    current: BucketMap,
    primary: Sequence[int],
    backup: Sequence[int],
    migrating: Mapping[int, int],
    handover: Mapping[int, int],
) -> BucketMap:
    since = {
        bucket: current.migrating_since.get(bucket, 0)
        if current.migrating.get(bucket) == server
        else current.version + 1
        for bucket, server in migrating.items()
    }
    found = BucketMap(
        version=current.version,
        primary=tuple(primary),
        backup=tuple(backup),
        migrating=migrating,
        migrating_since=since,
        handover=handover,
    )
    return current if found == current else replace(found, version=current.version + 1)


class _Target:
    """The target of all buckets: first their servers, then which of these is the primary.

    Copies are even in number, since they are memory; primaries are even in load, since they are work. As many copies
    as possible stay where they are. If every server has c copies or one more, the roles in each bucket can always be
    given so that every server is the primary of c/2 buckets, rounded up or down (an Eulerian orientation of the graph
    whose edges are buckets): swapping roles along paths from busy to idle servers finds it, and copies nothing.
    """

    def __init__(
        self, current: BucketMap, servers: Sequence[int], replicas: int, loads: Sequence[float] | None
    ) -> None:
        self.servers = frozenset(servers)
        self._order = servers
        self._current = current
        self._wanted = min(replicas, len(servers))
        measured = loads if loads and sum(loads) > 0 else None
        self._loads = [1.0] * BUCKETS
        # One bucket more or less: nothing is evener than that.
        self._least_difference = 1.0
        if measured is not None:
            total = sum(measured)
            # A little for each bucket, so that those without any load are spread as well.
            self._loads = [load * BUCKETS / total + 0.1 for load in measured]
            self._least_difference = _TOLERANCE * sum(self._loads) / len(servers)
        # With one copy of everything the copies are the work.
        self._weights = self._loads if self._wanted == 1 else [1.0] * BUCKETS
        self._copies = dict.fromkeys(servers, 0.0)
        # The servers that have each bucket, or are receiving it.
        self._known = [
            {primary, backup, current.migrating.get(bucket, NO_SERVER)}
            for bucket, (primary, backup) in enumerate(zip(current.primary, current.backup, strict=True))
        ]
        self.holders = [self._staying(bucket) for bucket in range(BUCKETS)]
        self._give_up()
        self._add()
        self._even_copies()
        self.primary = [self._first_primary(bucket) for bucket in range(BUCKETS)]
        self._work = dict.fromkeys(servers, 0.0)
        for bucket, server in enumerate(self.primary):
            self._work[server] += self._loads[bucket]
        if self._wanted > 1:
            self._even_work()
            if measured is not None:
                self._exchange()

    # -- who holds what --------------------------------------------------------------------------------------

    def _staying(self, bucket: int) -> set[int]:
        held = self._known[bucket] & self.servers
        for server in held:
            self._copies[server] += self._weights[bucket]
        return held

    def _give_up(self) -> None:
        for bucket, held in enumerate(self.holders):
            while len(held) > self._wanted:
                # A bucket in migration is needed there.
                choice = held - {self._current.migrating.get(bucket, NO_SERVER)}
                server = max(
                    choice,
                    key=lambda server: (self._copies[server], server != self._current.primary[bucket]),
                )
                self._drop(bucket, server)

    def _add(self) -> None:
        for bucket, held in enumerate(self.holders):
            while len(held) < self._wanted:
                self._hold(
                    bucket, min(self.servers - held, key=lambda server: (self._copies[server], server))
                )

    def _even_copies(self) -> None:
        while True:
            rich = max(self._order, key=lambda server: self._copies[server])
            poor = min(self._order, key=lambda server: self._copies[server])
            difference = self._copies[rich] - self._copies[poor]
            if self._wanted > 1 and difference > 1 and self._pass_on(rich, poor):
                continue
            bucket = self._to_move(rich, poor, difference)
            if bucket is None:
                return
            self._drop(bucket, rich)
            self._hold(bucket, poor)

    def _pass_on(self, rich: int, poor: int) -> bool:
        """Moves copies that do not exist yet, perhaps over other servers: that costs nothing."""
        found: dict[int, tuple[int, int]] = {}
        ahead = deque([rich])
        while ahead and poor not in found:
            server = ahead.popleft()
            for bucket, held in enumerate(self.holders):
                if server in held and server not in self._known[bucket]:
                    for other in self._order:
                        if other not in held and other not in found and other != rich:
                            found[other] = (server, bucket)
                            ahead.append(other)
        if poor not in found:
            return False
        server = poor
        while server != rich:
            giver, bucket = found[server]
            self._drop(bucket, giver)
            self._hold(bucket, server)
            server = giver
        return True

    def _to_move(self, rich: int, poor: int, difference: float) -> int | None:
        """The bucket that evens out two servers best, at the least cost."""
        if difference <= self._least_difference:
            return None
        primary, backup, migrating = self._current.primary, self._current.backup, self._current.migrating
        best: tuple[bool, float, bool, int] | None = None
        for bucket, held in enumerate(self.holders):
            weight = self._weights[bucket]
            if rich not in held or poor in held or migrating.get(bucket) == rich or weight >= difference:
                continue
            works = rich == primary[bucket]
            cost = (works or rich == backup[bucket], abs(weight - difference / 2), works, bucket)
            if best is None or cost < best:
                best = cost
        return best[-1] if best is not None else None

    def _drop(self, bucket: int, server: int) -> None:
        self.holders[bucket].discard(server)
        self._copies[server] -= self._weights[bucket]

    def _hold(self, bucket: int, server: int) -> None:
        self.holders[bucket].add(server)
        self._copies[server] += self._weights[bucket]

    # -- who of them is the primary --------------------------------------------------------------------------

    def _first_primary(self, bucket: int) -> int:
        held = self.holders[bucket]
        for server in (self._current.primary[bucket], self._current.backup[bucket]):
            if server in held:
                return server
        return min(held)

    def _even_work(self) -> None:
        # Direct moves between two servers are most of the work, and quickly found.
        while sum(self._swap_directly(bucket) for bucket in range(BUCKETS)):
            pass
        while self._swap_once():
            pass

    def _swap_directly(self, bucket: int) -> bool:
        server, other, load = self.primary[bucket], self._other(bucket), self._loads[bucket]
        if self._work[server] - self._work[other] <= max(load, self._least_difference):
            return False
        self.primary[bucket] = other
        self._work[server] -= load
        self._work[other] += load
        return True

    def _swap_once(self) -> bool:
        by_work = sorted(self._order, key=lambda server: (self._work[server], server))
        for rich in reversed(by_work):
            poorer = [
                poor for poor in by_work if self._work[rich] - self._work[poor] > self._least_difference
            ]
            if not poorer:
                return False
            paths = self._paths(rich)
            if any(poor in paths and self._flip(paths, rich, poor) for poor in poorer):
                return True
        return False

    def _paths(self, rich: int) -> dict[int, tuple[int, int]]:
        """Returns, for all servers that load can be passed on to from there, by which server, and which bucket."""
        found: dict[int, tuple[int, int]] = {}
        edges: dict[int, list[int]] = {}
        for bucket, server in enumerate(self.primary):
            edges.setdefault(server, []).append(bucket)
        ahead = deque([rich])
        while ahead:
            server = ahead.popleft()
            # The lighter ones first: they are the most likely to fit.
            for bucket in sorted(edges.get(server, ()), key=lambda bucket: self._loads[bucket]):
                other = self._other(bucket)
                if other != rich and other not in found:
                    found[other] = (server, bucket)
                    ahead.append(other)
        return found

    def _flip(self, paths: Mapping[int, tuple[int, int]], rich: int, poor: int) -> bool:
        """Swaps roles along a path, if that evens out the work."""
        path = []
        server = poor
        while server != rich:
            server, bucket = paths[server]
            path.append(bucket)
        changed: defaultdict[int, float] = defaultdict(float)
        for bucket in path:
            changed[self.primary[bucket]] -= self._loads[bucket]
            changed[self._other(bucket)] += self._loads[bucket]
        before = sum(self._work[server] ** 2 for server in changed)
        after = sum((self._work[server] + change) ** 2 for server, change in changed.items())
        if after >= before - 1e-9:
            return False
        for server, change in changed.items():
            self._work[server] += change
        for bucket in path:
            self.primary[bucket] = self._other(bucket)
        return True

    def _other(self, bucket: int) -> int:
        primary = self.primary[bucket]
        for server in self.holders[bucket]:
            if server != primary:
                return server
        raise AssertionError("a bucket has one copy, and should have two")

    # -- a hot server ----------------------------------------------------------------------------------------

    def _exchange(self) -> None:
        """Swaps buckets where moves do not help: a busy bucket goes to the idlest server, a backup without load comes
        back.
        """
        for _ in range(_EXCHANGES):
            rich = max(self._order, key=lambda server: self._work[server])
            poor = min(self._order, key=lambda server: self._work[server])
            difference = self._work[rich] - self._work[poor]
            going = [
                bucket
                for bucket, server in enumerate(self.primary)
                if server == rich and poor not in self.holders[bucket] and self._loads[bucket] < difference
            ]
            coming = [
                bucket
                for bucket, held in enumerate(self.holders)
                if poor in held and rich not in held and self.primary[bucket] != poor
            ]
            free = [bucket for bucket in coming if bucket not in self._current.migrating]
            if difference <= 2 * self._least_difference or not going or not free:
                return
            hot = min(going, key=lambda bucket: (abs(self._loads[bucket] - difference / 2), bucket))
            self._drop(hot, rich)
            self._hold(hot, poor)
            self.primary[hot] = poor
            self._work[rich] -= self._loads[hot]
            self._work[poor] += self._loads[hot]
            self._drop(free[0], poor)
            self._hold(free[0], rich)
