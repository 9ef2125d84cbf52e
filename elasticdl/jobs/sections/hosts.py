"""The machines of a job without Kubernetes: `--hosts=gpu1,gpu2,alice@gpu3`, as the ssh client names them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from elasticdl.jobs.flags.grammar import Grammar, Rule
from elasticdl.jobs.flags.pairs import BadValue, split_outside

# No dash first: that would be an option of ssh.
_HOST = Rule(
    pattern=r"([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*",
    words="a host as ssh names it, NAME or USER@NAME; a port goes into ~/.ssh/config",
    longest=255,
)


class HostsGrammar(Grammar[tuple[str, ...]]):
    metavar = "HOST,..."
    repeatable: ClassVar[bool] = True

    def parse(self, raw: object) -> tuple[str, ...]:
        hosts = _hosts(raw)
        for host in hosts:
            _HOST.check(host)
            if hosts.count(host) > 1:
                raise BadValue(f"{host!r} is given twice")
        return tuple(hosts)

    def plain(self, value: tuple[str, ...]) -> list[str]:
        return list(value)

    def text(self, value: tuple[str, ...]) -> str:
        return ",".join(value)


def _hosts(raw: object) -> list[str]:
    if isinstance(raw, str):
        return [piece.strip() for piece in split_outside(raw, ",;")]
    if isinstance(raw, Sequence):
        return [host for part in raw for host in _hosts(part)]
    raise BadValue(f"{raw!r} is not a list of hosts")
