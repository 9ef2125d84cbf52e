"""The map of buckets to parameter servers, as part of the job's state.

The map is made when all servers have joined, and changes when one is lost, when the number of servers is to be
another, and when one is much busier than the others. What the next map is, `ps.moves` works out; when to ask it, is
decided here. Servers are known by their slots: the replacement of a lost one takes its place.

While a copy of the model is kept for an evaluation or a checkpoint, servers keep their buckets, for the copy lies
where the buckets are: moves wait until it is released, and the copy waits until no bucket is being handed over. A loss
does not wait; backups have the copy too. Where one checkpoint is due as soon as the one before is written, moves would
wait forever: so they have a turn between two copies, and those that make up for a loss are carried out to their end.

Failure modes
    A server is lost: its buckets' backups take over at once. If a bucket has no other copy, the model is lost, and the
    job goes back to its last checkpoint with a map of its own. A lost server is waited for, since what it held can go
    back to it; if it stays missing (`replan`), the others make new copies among themselves, if they have room for them.
    Servers that are too many, and hold something yet, stay for those that are missing. The same goes for a generation:
    it begins with all servers, or with those that are there if others are missing.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from elasticdl.jobs.status import BucketReport
from elasticdl.master.commands.bucket_placement import (
    AdoptBucketMap,
    AdvanceMigration,
    RebalanceBuckets,
    RenumberBucketMap,
    ReplanBuckets,
)
from elasticdl.master.lifecycle.job_outcome import JobOutcome
from elasticdl.master.lifecycle.roster import Node, Roster
from elasticdl.master.settings import JobSettings
from elasticdl.ps.core.buckets import BUCKETS, NO_SERVER, BucketMap, first_map
from elasticdl.ps.replication.placement_planner import plan_moves, promote

# Steps of a plan that follow from each other without an action in between: few.
_STEPS_AT_ONCE = 10
# Buckets that a server copies at a time. A small model is copied within a second or two of a loss; of a large one, what
# follows from the next loss does not have to wait for all of it.
_FILLINGS_AT_ONCE = 32
# More than are made in the time between two snapshots.
_VERSIONS_SKIPPED = 1_000


class BucketPlacement:
    def __init__(
        self,
        *,
        settings: JobSettings,
        roster: Roster,
        outcome: JobOutcome,
        generation: Callable[[], int],
        frozen: Callable[[], bool],
    ) -> None:
        """`frozen`: whether a snapshot of the model exists, or is about to be taken."""
        self._settings = settings
        self._roster = roster
        self._outcome = outcome
        self._generation = generation
        self._frozen = frozen
        self.map: BucketMap | None = None
        # The version of the newest map: versions only grow, also over generations.
        self._version = 0
        # The work of each bucket as it was measured when servers were last found to be uneven.
        self._loads: list[int] = []
        # Something has happened that may call for moves.
        self._due = False
        # Missing servers that are not waited for any more.
        self._impatient = False
        # Moves have gone on since the last copy of the model was made.
        self._had_turn = True

    # -- commands --------------------------------------------------------------------------------------------

    def advance(self, command: AdvanceMigration) -> None:
        """Servers have copied buckets (bucket, to whom, its incarnation), and been handed some, all by the map of that
        version. With another map it would mean something else, and is repeated.
        """
        version, taken = command.version, command.taken
        if self.map is None or self.map.version != version:
            return
        staying = self._staying()
        if self.frozen or staying is None:
            # No migration begins, but handovers complete: a barrier waits for them.
            left = {bucket: one for bucket, one in self.map.handover.items() if bucket not in taken}
            if left != self.map.handover:
                self._use(dataclasses.replace(self.map, version=version + 1, handover=left))
            return
        joined = self._joined()
        # A copy that a server had before it was started again is none.
        done = {
            bucket: server
            for bucket, server, incarnation in command.filled
            if server in joined and joined[server].incarnation == incarnation
        }
        self._step(staying, filled=done, taken=taken)
        self._due = self._had_turn = True

    def rebalance(self, command: RebalanceBuckets) -> None:
        """Servers have much more work than others: so much is that of each bucket."""
        self._loads = command.loads
        self._due = True

    def replan(self, command: ReplanBuckets) -> None:
        """Servers that are missing have been waited for long enough."""
        self._impatient = self._due = True

    def adopt(self, command: AdoptBucketMap) -> bool:
        """Returns False if the model is lost: a server is missing that had the only copy of a bucket."""
        adopted = _of_plain(command.buckets)
        if command.generation != self._generation() or adopted.version <= self._version:
            return True
        self._use(adopted)
        missing = adopted.servers - self._joined().keys()
        if missing and not self._promote(missing):
            return False
        self._due = True
        return True

    def renumber(self, command: RenumberBucketMap) -> None:
        """A server that does not answer a master that has forgotten something may know newer maps than the others do:
        whatever comes from now on is newer than those.
        """
        self._version += _VERSIONS_SKIPPED
        if self.map is not None:
            self._use(dataclasses.replace(self.map, version=self._version))

    # -- what happens ----------------------------------------------------------------------------------------

    def joined(self) -> None:
        """A server has."""
        self._due = True

    def scaled(self) -> None:
        """Plans a new map after a change of the number of servers."""
        self._due = True
        self._impatient = False

    def copied(self) -> None:
        """The model has been, for an evaluation or a checkpoint."""
        self._had_turn = False

    def lost(self, node: Node) -> bool:
        """A server is. True: with it, the only copy of something."""
        if self.map is None or not _counts(node) or node.slot not in self.map.servers:
            return False
        self._due = True
        self._impatient = False
        return not self._promote({node.slot})

    def lose_model(self) -> None:
        """The model is lost: the next generation begins with a map of its own."""
        self.map = None
        self._loads = []
        self._due = self._impatient = False
        self._had_turn = True

    def _promote(self, lost: set[int] | frozenset[int]) -> bool:
        assert self.map is not None
        promoted = promote(self.map, lost)
        if promoted is None:
            return False
        self._use(promoted)
        return True

    def settle(self) -> None:
        """Moves on as far as that goes by itself."""
        if not self._settings.servers or self._outcome.result:
            return
        wanted = self._roster.targets["ps"]
        if self.map is None:
            staying = self._staying()
            if staying is not None:
                self._use(first_map(staying, replicas=self._settings.replicas, version=self._version + 1))
                self._due = False
        elif self._due and not self.frozen and (staying := self._staying()) is not None:
            for _ in range(_STEPS_AT_ONCE):
                if not self._step(staying):
                    break
            self._due = False
        self._release_surplus_servers(wanted)

    def _staying(self) -> list[int] | None:
        """The servers that shall hold everything; None while some of them are waited for."""
        found = self.present
        if len(found) == self._roster.targets["ps"]:
            return found
        return (self.without_the_missing or None) if self._impatient else None

    def _step(
        self, staying: list[int], *, filled: Mapping[int, int] | None = None, taken: Collection[int] = ()
    ) -> bool:
        assert self.map is not None
        planned = plan_moves(
            self.map,
            staying,
            replicas=self._settings.replicas,
            loads=self._loads or None,
            filled=filled,
            taken=taken,
            at_once=_FILLINGS_AT_ONCE,
        )
        changed = planned is not self.map
        self._use(planned)
        return changed

    def _use(self, new: BucketMap) -> None:
        self.map = new
        self._version = new.version

    def _release_surplus_servers(self, wanted: int) -> None:
        """Servers that are too many go when nothing is on them any more."""
        needed = self.map.servers if self.map is not None else frozenset()
        for node in self._roster.alive("ps"):
            if node.slot >= wanted and node.slot not in needed:
                node.draining = True

    # -- questions -------------------------------------------------------------------------------------------

    def _joined(self) -> dict[int, Node]:
        return {node.slot: node for node in self._roster.alive("ps") if _counts(node)}

    @property
    def present(self) -> list[int]:
        """The servers that are there and shall stay."""
        wanted = self._roster.targets["ps"]
        return [server for server in self._joined() if server < wanted]

    @property
    def without_the_missing(self) -> list[int]:
        """The servers that hold everything if the missing ones are not waited for: those that are there, and for each
        that is not, one that was to go. That one goes when the other has come.
        """
        wanted = self._roster.targets["ps"]
        return sorted(self._joined(), key=lambda server: (server >= wanted, server))[:wanted]

    @property
    def copies(self) -> float:
        """Returns the mean number of replicas of a bucket."""
        return 0.0 if self.map is None else 2 - self.map.backup.count(NO_SERVER) / BUCKETS

    @property
    def frozen(self) -> bool:
        """A copy of the model lies where the buckets are, or is about to."""
        return self._frozen()

    @property
    def moving(self) -> bool:
        """Servers are at work on what the map asks of them."""
        return self.map is not None and bool(self.map.migrating or self.map.handover)

    @property
    def handing_over(self) -> bool:
        """Whether a handover is under way: some buckets have no serving primary."""
        return self.map is not None and bool(self.map.handover)

    @property
    def waits(self) -> bool:
        """Whether the placement waits for missing servers, until they join or for `replan`; or for the release of a
        snapshot.
        """
        if self.map is None:
            # Servers of a job that has not begun start when there is a place for them; present ones hold nothing.
            return self._version > 0 and bool(self._joined()) and self._staying() is None
        return self._due and self._staying() is None

    @property
    def has_a_turn(self) -> bool:
        """The next copy of the model is to wait for moves, which go on by themselves."""
        staying = self._staying()
        if self.map is None or self.frozen or staying is None or not (self.moving or self._due):
            return False
        lacks_copies = min(self._settings.replicas, len(staying)) > 1 and NO_SERVER in self.map.backup
        return lacks_copies or not self._had_turn

    def may_lose(self, servers: Collection[int]) -> bool:
        """Others have copies of all that is on these."""
        return self.map is not None and promote(self.map, servers) is not None

    def holders(self) -> dict[int, Node]:
        """The servers that hold something; none as long as there is no map."""
        if self.map is None:
            return {}
        joined = self._joined()
        return {server: joined[server] for server in sorted(self.map.servers) if server in joined}

    def addresses(self) -> dict[int, str]:
        """Returns the addresses of the servers that hold buckets."""
        return {server: node.address for server, node in self.holders().items()}

    def report(self) -> BucketReport | None:
        """Returns how buckets are spread over the servers. None while there is no map."""
        if self.map is None:
            return None
        primaries = Counter(self.map.primary)
        return BucketReport(
            map_version=self.map.version,
            by_server={node.name: primaries[server] for server, node in self.holders().items()},
            is_migrating=self.moving or self._due,
            without_backup=self.map.backup.count(NO_SERVER),
        )

    def next_for(self, loads: list[int]) -> bool:
        """These loads call for moves, and there is time for them."""
        if self.map is None or self.moving or self._due or self.frozen or not any(loads):
            return False
        staying = self._staying()
        if staying is None or len(staying) < 2:
            return False
        planned = plan_moves(self.map, staying, replicas=self._settings.replicas, loads=loads)
        return planned is not self.map

    # -- journal ---------------------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "map": None if self.map is None else plain(self.map),
            "version": self._version,
            "loads": self._loads,
            "due": self._due,
            "impatient": self._impatient,
            "had_turn": self._had_turn,
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        self.map = None if snapshot["map"] is None else _of_plain(snapshot["map"])
        self._version = snapshot["version"]
        self._loads = list(snapshot["loads"])
        self._due = snapshot["due"]
        self._impatient = snapshot["impatient"]
        # Journals of before have none.
        self._had_turn = snapshot.get("had_turn", True)


def _counts(node: Node) -> bool:
    """Whether a server is, or was as long as it lived, the one in its slot. A drained server holds nothing, and
    another one may have the slot before it has ended.
    """
    return bool(node.incarnation) and not node.draining


def fewest_servers(rows: int, *, copies: float, replicas: int, room: int) -> int:
    """Servers that these bytes of rows need, in so many copies as there are now, if each has room for so many."""
    once = rows / copies
    # One server has no other to keep a copy on.
    alone = once <= room
    return 1 if alone else max(2, math.ceil(once * replicas / room))


def plain(buckets: BucketMap) -> dict[str, Any]:
    """A map as it is written down."""
    return {
        "version": buckets.version,
        "primary": list(buckets.primary),
        "backup": list(buckets.backup),
        "filling": [[bucket, server] for bucket, server in buckets.migrating.items()],
        "filling_since": [[bucket, version] for bucket, version in buckets.migrating_since.items()],
        "handover": [[bucket, server] for bucket, server in buckets.handover.items()],
    }


def _of_plain(written: Mapping[str, Any]) -> BucketMap:
    return BucketMap(
        version=written["version"],
        primary=tuple(written["primary"]),
        backup=tuple(written["backup"]),
        migrating=dict(written["filling"]),
        # Journals of before have none.
        migrating_since=dict(written.get("filling_since", ())),
        handover=dict(written["handover"]),
    )
