"""Nodes on several machines, reached over ssh, as the job's master on the submitting machine uses them.

Every node has a local process (`remote_node`), which the keeper of the job runs like any node: so logs, stops, ends and
a restarted master work as on the local platform. This class chooses the host, builds the command to run there, and
translates the reports of the local processes.

Failure modes
    A host that is lost, or cannot be reached, counts as a killed node: it is replaced, on another host (`host_table`).
    Where nodes have addresses (`addresses`), a place is on one host, and its node waits for that one. A host that lacks
    a requirement of the node is reported as a node that cannot start. When the submitting machine is lost, the nodes on
    all hosts are killed after some seconds (`agent`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus, Platform
from elasticdl.platforms.ssh.host_check import check_hosts
from elasticdl.platforms.ssh.host_table import HostTable
from elasticdl.platforms.ssh.launch import Document, SshOptions
from elasticdl.platforms.ssh.remote_node import CANNOT_START, HOST_LOST, REQUEST

log = logging.getLogger("elasticdl.platforms.ssh")

# Isolated, as the keeper: it starts sooner, and the environment of the job is not for it.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv[1]); from elasticdl.platforms.ssh.remote_node import main; main()"
)
# These name files of the job, which are copied to the hosts.
_FILES = ("ELASTICDL_TOKEN_FILE", "ELASTICDL_CA_FILE", "ELASTICDL_CERT_FILE", "ELASTICDL_KEY_FILE")
_SIGNALLED = 128


@dataclass(frozen=True, kw_only=True)
class SshSettings:
    hosts: tuple[str, ...]
    options: SshOptions
    # Nodes find each other at addresses that belong to their places.
    is_addressed: bool = False
    # The same for all nodes; what differs is filled in.
    document: Document = field(default_factory=Document)


class SshPlatform(Platform):
    """`folder`: in the job's folder, for what a master that is started again has to know."""

    def __init__(
        self,
        local: Platform,
        settings: SshSettings,
        folder: Path,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._local = local
        self._settings = settings
        self._folder = folder
        self._clock = clock
        folder.mkdir(mode=0o700, exist_ok=True)
        self._reading = asyncio.Lock()
        self._has_read = False
        self._table = HostTable(settings.hosts, folder / "placements.jsonl")

    async def start(self, request: NodeRequest) -> None:
        async with self._reading:
            if not self._has_read:
                # A master that is started again finds its nodes, one of a resumed job has none.
                self._table.keep_only({status.name for status in await self.nodes()})
                self._has_read = True
        fixed = self._host_of_place(request.place) if self._settings.is_addressed else ""
        host = self._table.place(request.name, request.role, self._clock(), fixed=fixed)
        log.info("Placing %s on host %s", request.name, host)
        files = {
            name: Path(request.environment[name]).read_text()
            for name in _FILES
            if name in request.environment
        }
        document = replace(
            self._settings.document,
            command=request.command,
            environment={name: value for name, value in request.environment.items() if name not in files},
            files=files,
            sharing=self._sharing(request),
        )
        remote = {
            "host": host,
            "options": asdict(self._settings.options),
            "document": document.to_dict(),
            "report": str(self._report(request.name)),
        }
        await self._local.start(
            replace(
                request,
                command=(sys.executable, "-I", "-S", "-c", _PROGRAM, str(Path(__file__).parents[3])),
                environment={REQUEST: json.dumps(remote)},
            )
        )

    async def stop(self, name: str, *, grace_seconds: float) -> None:
        await self._local.stop(name, grace_seconds=grace_seconds)

    async def nodes(self) -> list[NodeStatus]:
        return [self._translated(status) for status in await self._local.nodes()]

    async def events(self) -> AsyncIterator[NodeStatus]:
        async for status in self._local.events():
            yield self._translated(status)

    async def addresses(self, places: dict[str, int]) -> dict[str, list[str]]:
        counts = Counter(self._host_of_place(place) for count in places.values() for place in range(count))
        if not self._settings.is_addressed or not counts:
            return {}
        found: dict[str, list[str]] = {}
        for host, count in counts.items():
            document = replace(self._settings.document, version="", ports=count)
            (report,) = await asyncio.to_thread(check_hosts, [host], self._settings.options, document)
            found[host] = [*report.addresses]
        return {
            role: [found[self._host_of_place(place)].pop() for place in range(count)]
            for role, count in places.items()
        }

    async def close(self) -> None:
        await self._local.close()

    def _host_of_place(self, place: int) -> str:
        return self._settings.hosts[place % len(self._settings.hosts)]

    def _sharing(self, request: NodeRequest) -> int:
        if request.role != "worker" or not request.environment.get("WORKER_NUM"):
            return 0
        return -(-request.places // len(self._settings.hosts))

    def _translated(self, status: NodeStatus) -> NodeStatus:
        if status.phase not in (NodePhase.SUCCEEDED, NodePhase.FAILED):
            return status
        ended_by = (status.exit_code or 0) - _SIGNALLED if status.reason is EndReason.KILLED else 0
        self._table.end(status.name, self._clock(), is_lost=ended_by == HOST_LOST)
        if ended_by == HOST_LOST:
            return replace(status, exit_code=None, message=self._reason(status.name))
        if ended_by == CANNOT_START:
            reason = EndReason.CANNOT_START
            return replace(status, reason=reason, exit_code=None, message=self._reason(status.name))
        return status

    def _report(self, name: str) -> Path:
        return self._folder / f"{name}.report"

    def _reason(self, name: str) -> str:
        try:
            return self._report(name).read_text()
        except OSError:
            return f"host {self._table.host_of(name)}"
