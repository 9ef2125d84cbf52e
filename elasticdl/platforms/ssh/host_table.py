"""Chooses the host of a node: the one with the fewest nodes of its role, then with the fewest nodes.

A host that was lost is avoided for a while, longer each time in a row; where all were lost, the one whose time is over
first is tried. The choices are kept in a file of the job's folder, so that a master that is started again knows them.
A decision and a clock as an argument: nothing here waits or connects.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

_AVOID_SECONDS = 30.0
_MOST_AVOID_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class _Placed:
    host: str
    role: str


class HostTable:
    """`file`: where the choices are kept, one JSON object a line."""

    def __init__(self, hosts: Sequence[str], file: Path) -> None:
        self._hosts = tuple(hosts)
        self._file = file
        self._placed: dict[str, _Placed] = {}
        self._ended: set[str] = set()
        self._losses: Counter[str] = Counter()
        self._avoided_until: dict[str, float] = {}
        if file.exists():
            for line in file.read_text().splitlines():
                entry = json.loads(line)
                self._placed[entry["node"]] = _Placed(host=entry["host"], role=entry["role"])

    def host_of(self, node: str) -> str:
        """The host of a node that was placed; "" for others."""
        placed = self._placed.get(node)
        return placed.host if placed else ""

    def place(self, node: str, role: str, now: float, *, fixed: str = "") -> str:
        """Chooses a host, unless one is fixed, and remembers it. The same node again has the same host."""
        if host := self.host_of(node):
            return host
        chosen = fixed or self._choose(role, now)
        self._placed[node] = _Placed(host=chosen, role=role)
        with self._file.open("a") as file:
            file.write(json.dumps({"node": node, "role": role, "host": chosen}) + "\n")
        return chosen

    def _choose(self, role: str, now: float) -> str:
        live = [placed for name, placed in self._placed.items() if name not in self._ended]
        of_role = Counter(placed.host for placed in live if placed.role == role)
        of_any = Counter(placed.host for placed in live)
        free = [host for host in self._hosts if self._avoided_until.get(host, 0.0) <= now]
        if free:
            return min(free, key=lambda host: (of_role[host], of_any[host], self._hosts.index(host)))
        return min(self._hosts, key=lambda host: self._avoided_until[host])

    def keep_only(self, nodes: Collection[str]) -> None:
        """Takes all others for ended: those of an attempt before this one, say."""
        self._ended.update(self._placed.keys() - set(nodes))

    def end(self, node: str, now: float, *, is_lost: bool) -> None:
        """A node has ended; `is_lost`: its host could not be reached, or the connection broke."""
        host = self.host_of(node)
        if not host or node in self._ended:
            return
        self._ended.add(node)
        if not is_lost:
            self._losses.pop(host, None)
            return
        if self._avoided_until.get(host, 0.0) > now:
            return  # lost with others of the same host
        self._losses[host] += 1
        seconds = min(_AVOID_SECONDS * 2.0 ** (self._losses[host] - 1), _MOST_AVOID_SECONDS)
        self._avoided_until[host] = now + seconds
