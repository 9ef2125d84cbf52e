"""A master that comes back without its journal: what it does around the gathering (`reclaim_round.py`) of what is
remembered.

The order: the snapshot is taken over if it is of this job; the checkpoint to go back to is looked for on disk; the
platform says which nodes there are, started or ended since; workers tell; the parameter servers say of which
generation they are. Then the job goes on.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elasticdl.errors import UserError
from elasticdl.master.recovery.remote_snapshot import unpack
from elasticdl.master.servers.bucket_placement import plain
from elasticdl.platforms.platform import EndReason, NodePhase, Platform
from elasticdl.ps.checkpoint import checkpoints
from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.core.buckets import BucketMap
from elasticdl.wire import ps_pb2

if TYPE_CHECKING:
    from elasticdl.master.master import Master

log = logging.getLogger("elasticdl.master")

# Workers find a master that is back within a second or two; a cluster takes some more to lead them to it.
PATIENCE_SECONDS = 20.0
# One that was started after the snapshot is not known to be waited for.
_AT_LEAST_SECONDS = 3.0
_ENDED = (NodePhase.SUCCEEDED, NodePhase.FAILED)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def take_over(master: Master, text: str) -> None:
    """Begins with a snapshot. Raises `UserError` if it is not of this job."""
    snapshot = unpack(text, of=master.identity)
    saved = snapshot["saved"]
    snapshot["saved"] = None
    master.state.restore(snapshot)
    if master.state.outcome:
        return
    found = _checkpoint(saved, master.cutting.folder(), run=master.run_id)
    if saved and found is None:
        log.warning(
            "The checkpoint %s is gone: if the model is lost, the training begins anew.", saved["path"]
        )
    # Not written down by itself: a journal begins with all of it, or with nothing.
    master.state.apply("gathering.reopen", {"lineage": uuid.uuid4().hex, "saved": found})
    log.warning("There is no journal: going on from a snapshot, and from what the workers remember.")


def moved(folder: Path, boot_id: Path = _BOOT_ID) -> bool:
    """The journal in this folder was written by another machine, or before this one was started again.

    What a machine had not yet synced when it was lost is missing at the end of it: some records of the last second.
    """
    try:
        present = boot_id.read_text().strip()
    except OSError:
        return False
    noted = folder / "machine"
    before = noted.read_text().strip() if noted.exists() else present
    noted.write_text(present)
    return before != present


def distrust(master: Master) -> None:
    """The journal may lack its end: workers are asked what they remember."""
    if master.state.outcome:
        return
    saved = asdict(master.state.saved) if master.state.saved is not None else None
    master.do("gathering.reopen", lineage=uuid.uuid4().hex, saved=saved)
    log.warning("The machine of the master before is lost: the last of its journal may be, too.")


def _checkpoint(saved: dict[str, Any] | None, folder: Path, *, run: str) -> dict[str, Any] | None:
    """The newest one of this job, which may be newer than the snapshot; else the one that the snapshot names."""
    try:
        newest = checkpoints.find_checkpoint(str(folder))
        if newest.manifest.attributes.get("run") == run:
            return {
                "path": str(newest.path.resolve()),
                "step": newest.manifest.step,
                "ledger": newest.ledger(),
            }
    except UserError as error:
        log.debug("%s", error)
    if saved is None:
        return None
    try:
        named = checkpoints.find_checkpoint(saved["path"])
        return {**saved, "ledger": named.ledger() if saved["ledger"] else None}
    except UserError as error:
        log.debug("%s", error)
        return None


class Comeback:
    """The effects of a gathering, from the first look at the platform to its end."""

    def __init__(
        self,
        master: Master,
        *,
        platform: Platform,
        servers: Coordinator,
        clock: Callable[[], float],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._master = master
        self._platform = platform
        self._servers = servers
        self._clock = clock
        self._patience_seconds = patience_seconds
        # The nodes of now are known: before that nobody can be told that it is none.
        self.listed = False

    async def gather(self) -> None:
        gathering = self._master.state.gathering
        await self._list_nodes()
        self.listed = True
        self._master.wake()
        begun, patience = self._clock(), self._patience_seconds if self._shards_are_held() else 0.0
        while gathering.active and not self._master.state.outcome:
            waited = self._clock() - begun
            if waited >= patience or (waited >= _AT_LEAST_SECONDS and gathering.complete):
                break
            await self._master.changed.wait(0.5)
        await self._ask_servers()
        told = len(gathering.told)
        self._master.do("gathering.close")
        log.info("%d workers have told what they remember: going on.", told)

    def _shards_are_held(self) -> bool:
        """Programs that train by all-reduce hold none: what they report next says it all. But whether a program without
        parameter servers does that is known only by the data that it goes through.
        """
        state, plan = self._master.state, self._master.plan
        by_steps = plan.allreduce and plan.runs_command
        return not by_steps or any(name != state.steps.dataset for name in state.data.announced)

    async def _list_nodes(self) -> None:
        master, roster = self._master, self._master.state.roster
        found = {status.name: status for status in await self._platform.nodes()}
        adopted, strangers = set(), []
        # All of them at once: nothing is heard of the end of a node that nobody knows.
        for name, status in found.items():
            if name in roster.nodes:
                continue
            number = name.rpartition("-")[2]
            if status.role == "worker" and status.phase not in _ENDED:
                master.do("gathering.adopt", node=name, place=status.place)
                adopted.add(name)
            elif number.isdigit():
                master.do("gathering.skip_number", role=status.role, number=int(number))
                if status.phase not in _ENDED:
                    strangers.append(name)
        for node in list(roster.nodes.values()):
            if node.seen and node.name not in found:
                status_fields = {
                    "name": node.name,
                    "role": node.role,
                    "phase": NodePhase.FAILED.value,
                    "reason": EndReason.KILLED.value,
                    "exit_code": None,
                    "message": "gone when the master came back",
                }
                master.do("observe", status=status_fields, credit=None)
        for name in strangers:
            # Nobody remembers which place it was to take.
            await self._platform.stop(name, grace_seconds=0)
        # What was told of them before they were known.
        for status in await self._platform.nodes():
            if status.name not in adopted or not roster.nodes[status.name].alive:
                continue
            if status.phase in _ENDED:
                master.supervisor.note_end(status)
            elif status.phase is NodePhase.LEAVING:
                master.supervisor.observe(status)

    async def _ask_servers(self) -> None:
        """Servers may be of a generation that the snapshot knows nothing of."""
        master = self._master
        holders = master.state.placing.holders()
        statuses = await self._servers.status_all(master.state.placing.addresses())
        silent = [node.name for server, node in holders.items() if server not in statuses]
        if silent:
            # If it is gone, the platform says so. The others know as much.
            log.warning("No answer from %s.", ", ".join(silent))
        highest = max((status.generation for status in statuses.values()), default=0)
        if highest > master.state.generation:
            master.do("gathering.raise_generation", above=highest)
        self._adopt_map(statuses)
        if silent and statuses:
            master.do("placing.renumber")

    def _adopt_map(self, statuses: Mapping[int, ps_pb2.ServerStatusReply]) -> None:
        """Buckets may have moved since the snapshot."""
        generation = self._master.state.generation
        maps = [status.ps_map for status in statuses.values() if status.generation == generation]
        newest = max(maps, key=lambda found: found.version, default=None)
        if newest is not None and newest.version:
            buckets = plain(BucketMap.from_wire(newest))
            self._master.do("placing.adopt", generation=generation, buckets=buckets)
