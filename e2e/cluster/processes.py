"""The running parts of a cluster: each is a process with a name, a log and a file with its id, in one folder.

They run in a network namespace of the cluster's own that has no way out, so nothing they do leaves the machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.cluster.commands import Word

# Runs a command again whenever it ends, as the kubelet does with the control plane of other clusters: the API server
# of 1.20, compiled by a newer Go, crashes now and then while it encodes custom resources.
_RESTARTED = ("sh", "-c", 'while :; do "$@"; echo "$1 ended with $?: restarting" >&2; sleep 0.5; done', "sh")


@dataclass(frozen=True, kw_only=True)
class Processes:
    folder: Path
    network: str

    def inside(self, *command: Word) -> list[str]:
        """The command as it runs in the cluster's network: `ip netns exec` would hide the cgroups."""
        return ["nsenter", f"--net=/run/netns/{self.network}", *map(str, command)]

    def start(self, name: str, command: Sequence[Word], *, restarts: bool = False) -> int:
        """Returns the process id. `restarts`: after a crash the command is run again, until `kill`."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                self.inside(*(_RESTARTED if restarts else ()), *command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self.folder / f"{name}.pid").write_text(str(process.pid))
        return process.pid

    def kill(self, name: str) -> None:
        """As a power cut would."""
        file = self.folder / f"{name}.pid"
        if file.exists():
            pid = int(file.read_text())
            with contextlib.suppress(ProcessLookupError):
                # Each is the leader of a group, with the command that it restarts.
                os.killpg(pid, signal.SIGKILL)
            _wait_for_end(pid)
            file.unlink()

    def runs(self, name: str) -> bool:
        file = self.folder / f"{name}.pid"
        return file.exists() and _state(int(file.read_text())) not in ("", "Z")

    def kill_containers(self, node: str) -> None:
        """End a node's containers with what keeps them."""
        tasks = self.folder / node / "state/io.containerd.runtime.v2.task/k8s.io"
        for file in tasks.glob("*/init.pid"):
            with contextlib.suppress(ProcessLookupError, ValueError, FileNotFoundError):
                os.kill(int(file.read_text()), signal.SIGKILL)
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                words = process.read_bytes().decode(errors="replace")
                if "containerd-shim" in words and f"{self.folder}/{node}/" in words:
                    os.kill(int(process.parent.name), signal.SIGKILL)

    def kill_all_inside(self) -> None:
        """Kills all else in the cluster's network: commands of tests that did not finish. Not this process,
        nor those that it was started by.
        """
        place = Path("/run/netns", self.network)
        if not place.exists():
            return
        network, spared = place.stat().st_ino, _ancestors(os.getpid())
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(ProcessLookupError, FileNotFoundError, PermissionError):
                if int(process.name) not in spared and (process / "ns/net").stat().st_ino == network:
                    os.kill(int(process.name), signal.SIGKILL)


def _ancestors(pid: int) -> set[int]:
    found = set()
    while pid > 0:
        found.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def _wait_for_end(pid: int) -> None:
    for _ in range(100):
        if _state(pid) in ("", "Z"):
            return
        time.sleep(0.05)


def _state(pid: int) -> str:
    """R, S, Z and so on; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
