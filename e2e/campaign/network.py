"""A network of its own for one job, and packets that do not arrive in it.

All processes of the job are in one network namespace and talk over its loopback interface. iptables drops what a
partition is to drop: packets to a port, from a port (one direction of a connection), or a part of all. TCP makes a
delay of that: it sends again, after 0.2 s and more. Needs root, or user namespaces.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_LISTEN, _LOOPBACK_UP = "0A", 'ip link set lo up && exec "$@"'


class Network:
    """The namespace of the process that was started with `prefix`."""

    def __init__(self) -> None:
        user = () if os.geteuid() == 0 else ("--user", "--map-root-user")
        self.prefix = ("unshare", "--net", *user, "sh", "-c", _LOOPBACK_UP, "sh")
        self._pid = 0

    @classmethod
    def is_available(cls) -> bool:
        rule = "iptables -A INPUT -p tcp --dport 1 -m statistic --mode random --probability 0.5 -j DROP"
        command = [*cls().prefix, "sh", "-c", rule]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except FileNotFoundError:
            return False

    def enter(self, pid: int) -> None:
        self._pid = pid

    def drop_towards(self, port: int) -> None:
        """A server hears nothing of its clients; what it sends arrives."""
        self._drop("-p", "tcp", "--dport", str(port))

    def drop_from(self, port: int) -> None:
        """Clients hear nothing of a server; what they send arrives."""
        self._drop("-p", "tcp", "--sport", str(port))

    def lose(self, part: float) -> None:
        self._drop("-m", "statistic", "--mode", "random", "--probability", f"{part:.3f}")

    def heal(self) -> None:
        self._run("-F", "INPUT")

    def _drop(self, *match: str) -> None:
        self._run("-A", "INPUT", *match, "-j", "DROP")

    def _run(self, *arguments: str) -> None:
        user = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
        command = ["nsenter", f"--target={self._pid}", "--net", *user, "iptables", *arguments]
        subprocess.run(command, check=True, capture_output=True)


def listening_ports(pid: int) -> list[int]:
    """Of a process in any network namespace."""
    held = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        if target.startswith("socket:["):
            held.add(target[len("socket:[") : -1])
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and fields[9] in held:
                found.append(int(fields[1].rsplit(":", 1)[1], 16))
    return sorted(set(found))
