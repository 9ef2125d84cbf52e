"""The recovery of a master without its journal, or with one that may lack its end.

The order: restore the snapshot if it is of this job; find the checkpoint to roll back to on disk; list the nodes of the
platform, and reconcile them with the roster; collect the reports of the workers (`reclaim.py`); ask the parameter
servers for their generation and bucket map. Then the job continues.

Failure modes: a snapshot of another job is refused with `UserError`. A missing checkpoint is logged; the training
starts from scratch if the model is lost too. After a timeout the recovery continues without the missing reports.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from elasticdl.errors import UserError
from elasticdl.master.commands.bucket_placement import AdoptBucketMap, RenumberBucketMap
from elasticdl.master.commands.checkpoints import SavedCheckpoint
from elasticdl.master.commands.executor import CommandExecutor
from elasticdl.master.commands.nodes import ObserveNode
from elasticdl.master.commands.recovery import (
    AdoptNode,
    FinishReclaim,
    RaiseGeneration,
    SkipNodeNumber,
    StartReclaim,
)
from elasticdl.master.job_state import JobState
from elasticdl.master.recovery.remote_snapshot import unpack
from elasticdl.master.servers.bucket_placement import plain
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus, Platform
from elasticdl.ps.checkpoint import checkpoint_folders
from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.core.buckets import BucketMap
from elasticdl.wire import ps_pb2

log = logging.getLogger("elasticdl.master")

# Workers find a master that is back within a second or two; on a cluster it takes some more until it is reachable.
PATIENCE_SECONDS = 20.0
# Workers that were started after the snapshot are not in it, so they get this long to appear.
_MIN_COLLECT_SECONDS = 3.0
_ENDED = (NodePhase.SUCCEEDED, NodePhase.FAILED)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class EndedNodes(Protocol):
    """The node supervisor, as far as a recovery concerns it."""

    def note_end(self, status: NodeStatus) -> None: ...

    def observe(self, status: NodeStatus) -> None: ...


class RecoveringMaster(CommandExecutor, Protocol):
    """The part of the master that the recovery uses."""

    @property
    def state(self) -> JobState: ...

    @property
    def plan(self) -> JobSettings: ...

    @property
    def identity(self) -> dict[str, Any]: ...

    @property
    def run_id(self) -> str: ...

    @property
    def supervisor(self) -> EndedNodes: ...


class JournalRecovery:
    """Recovers one master: `restore_snapshot` or `reclaim_lost_end` when it starts, then `run` beside its loop.

    The phase is in the job's state (`ReclaimPhase`), so a master that is killed during a recovery continues it.
    """

    def __init__(
        self,
        master: RecoveringMaster,
        *,
        platform: Platform,
        servers: Coordinator,
        checkpoint_folder: Callable[[], Path],
        clock: Callable[[], float],
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._master = master
        self._platform = platform
        self._servers = servers
        self._checkpoint_folder = checkpoint_folder
        self._clock = clock
        self._patience_seconds = patience_seconds
        # The nodes of the platform are known: before that no node is rejected as unknown.
        self.nodes_listed = False

    def restore_snapshot(self, text: str) -> None:
        """Starts from a snapshot kept elsewhere. Raises `UserError` if it is not of this job."""
        master = self._master
        snapshot = unpack(text, of=master.identity)
        saved = snapshot["saved"]
        snapshot["saved"] = None
        master.state.restore(snapshot)
        if master.state.outcome:
            return
        found = _find_checkpoint(saved, self._checkpoint_folder(), run=master.run_id)
        if saved and found is None:
            log.warning(
                "Checkpoint %s is gone: if the model is lost, training starts from scratch", saved["path"]
            )
        # Not journaled by itself: the journal begins with all of it, or with nothing.
        master.state.apply(StartReclaim(lineage=uuid.uuid4().hex, saved=found))
        log.warning("Recovering without a journal: from a snapshot and the reports of the workers")

    def reclaim_lost_end(
        self, *, why: str = "the machine of the previous master was lost", all_known: bool = True
    ) -> None:
        """Collects the reports of the workers: the journal may lack its end. `all_known`: they remember it all."""
        master = self._master
        if master.state.outcome:
            return
        master.do(
            StartReclaim(lineage=uuid.uuid4().hex, saved=master.state.saved, is_incomplete=not all_known)
        )
        log.warning("Recovering the end of the journal: %s", why)

    def newest_checkpoint(self, saved: SavedCheckpoint | None) -> SavedCheckpoint | None:
        """Returns the newest checkpoint of this job on disk, else `saved`. None if neither is there."""
        known = asdict(saved) if saved is not None else None
        return _find_checkpoint(known, self._checkpoint_folder(), run=self._master.run_id)

    async def run(self) -> None:
        """Runs from listing the nodes to the last report, or until the timeout."""
        reclaim = self._master.state.reclaim
        await self._list_nodes()
        self.nodes_listed = True
        self._master.wake()
        begun, patience = self._clock(), self._patience_seconds if self._has_leases() else 0.0
        while reclaim.is_collecting and not self._master.state.outcome:
            waited = self._clock() - begun
            if waited >= patience or (waited >= _MIN_COLLECT_SECONDS and reclaim.is_complete):
                break
            await self._master.changed.wait(0.5)
        await self._ask_servers()
        reported = len(reclaim.reported)
        self._master.do(FinishReclaim())
        log.info("Recovered: %d workers reported their shards", reported)

    def _has_leases(self) -> bool:
        """Whether workers hold leases. Programs that train by all-reduce hold none; whether a program without parameter
        servers does so is known only by its data sets.
        """
        state, plan = self._master.state, self._master.plan
        by_steps = plan.allreduce and plan.runs_command
        return not by_steps or any(name != state.steps.dataset for name in state.data.announced)

    async def _list_nodes(self) -> None:
        master, roster = self._master, self._master.state.roster
        found = {status.name: status for status in await self._platform.nodes()}
        adopted, unknown = set(), []
        # All at once: the end of an unknown node would be ignored.
        for name, status in found.items():
            if name in roster.nodes:
                continue
            number = name.rpartition("-")[2]
            if status.role == "worker" and status.phase not in _ENDED:
                master.do(AdoptNode(node=name, place=status.place))
                adopted.add(name)
            elif number.isdigit():
                master.do(SkipNodeNumber(role=status.role, number=int(number)))
                if status.phase not in _ENDED:
                    unknown.append(name)
        for node in list(roster.nodes.values()):
            if node.seen and node.name not in found:
                gone = NodeStatus(
                    name=node.name,
                    role=node.role,
                    phase=NodePhase.FAILED,
                    reason=EndReason.KILLED,
                    message="gone when the master restarted",
                )
                master.do(ObserveNode(status=gone))
        for name in unknown:
            # The place of the node is lost with the journal.
            await self._platform.stop(name, grace_seconds=0)
        # Events of the adopted nodes that came before they were known.
        for status in await self._platform.nodes():
            if status.name not in adopted or not roster.nodes[status.name].alive:
                continue
            if status.phase in _ENDED:
                master.supervisor.note_end(status)
            elif status.phase is NodePhase.LEAVING:
                master.supervisor.observe(status)

    async def _ask_servers(self) -> None:
        """Asks the servers for a generation or a bucket map newer than the snapshot's."""
        master = self._master
        holders = master.state.placing.holders()
        statuses = await self._servers.status_all(master.state.placing.addresses())
        unresponsive = [node.name for server, node in holders.items() if server not in statuses]
        if unresponsive:
            # If it is gone, the platform reports it. The others know as much.
            log.warning("Recovering without an answer from %s", ", ".join(unresponsive))
        highest = max((status.generation for status in statuses.values()), default=0)
        if highest > master.state.generation:
            master.do(RaiseGeneration(above=highest))
        self._adopt_map(statuses)
        if unresponsive and statuses:
            master.do(RenumberBucketMap())

    def _adopt_map(self, statuses: Mapping[int, ps_pb2.ServerStatusReply]) -> None:
        """Adopts the newest map: buckets may have been migrated since the snapshot."""
        generation = self._master.state.generation
        maps = [status.ps_map for status in statuses.values() if status.generation == generation]
        newest = max(maps, key=lambda found: found.version, default=None)
        if newest is not None and newest.version:
            buckets = plain(BucketMap.from_wire(newest))
            self._master.do(AdoptBucketMap(generation=generation, buckets=buckets))


def has_run(folder: Path) -> bool:
    """Whether a master has worked in this folder before; to be asked before `has_moved`."""
    return (folder / "machine").exists()


def has_moved(folder: Path, boot_id: Path = _BOOT_ID) -> bool:
    """Whether the journal in this folder was written by another machine, or before a reboot of this one.

    Then it may lack its end: the records of the last second that were not synced to disk.
    """
    try:
        present = boot_id.read_text().strip()
    except OSError:
        return False
    noted = folder / "machine"
    before = noted.read_text().strip() if noted.exists() else present
    noted.write_text(present)
    return before != present


def _find_checkpoint(saved: dict[str, Any] | None, folder: Path, *, run: str) -> SavedCheckpoint | None:
    """The newest checkpoint of this job, which may be newer than the snapshot; else the one that the snapshot names."""
    try:
        newest = checkpoint_folders.find_checkpoint(str(folder))
        if newest.manifest.attributes.get("run") == run:
            return SavedCheckpoint(
                path=str(newest.path.resolve()), step=newest.manifest.step, ledger=newest.ledger()
            )
    except UserError as error:
        log.debug("%s", error)
    if saved is None:
        return None
    try:
        named = checkpoint_folders.find_checkpoint(saved["path"])
        ledger = named.ledger() if saved["ledger"] else None
        return SavedCheckpoint(path=saved["path"], step=saved["step"], ledger=ledger)
    except UserError as error:
        log.debug("%s", error)
        return None
