"""The allowed destinations of a job's pods: `--egress=10.0.0.0/8:9000,192.0.2.7,any`.

Each target is a network or an address, of IPv4 or IPv6, with a port or without: all ports. Kubernetes' NetworkPolicies
know no host names.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from elasticdl.jobs.flags.grammar import Grammar
from elasticdl.jobs.flags.pairs import BadValue, split_outside

_ANY = "any"
_EXAMPLE = "10.0.0.0/8:9000"
_MOST_PORT = 65535
# [2001:db8::/32]:443, 10.0.0.0/8:443; without brackets, an address of IPv6 has no port.
_BRACKETED = re.compile(r"\[([^]]*)\](?::(.*))?", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Target:
    # "" is everything.
    network: str = ""
    # 0: all ports.
    port: int = 0

    @property
    def is_any(self) -> bool:
        return not self.network

    def __str__(self) -> str:
        if self.is_any:
            return _ANY
        if not self.port:
            return self.network
        network = f"[{self.network}]" if ":" in self.network else self.network
        return f"{network}:{self.port}"


class EgressGrammar(Grammar[tuple[Target, ...]]):
    metavar = "any|NETWORK[:PORT],..."
    repeatable: ClassVar[bool] = True

    def parse(self, raw: object) -> tuple[Target, ...]:
        return tuple(dict.fromkeys(_targets(raw)))

    def plain(self, value: tuple[Target, ...]) -> list[str]:
        return [str(target) for target in value]

    def text(self, value: tuple[Target, ...]) -> str:
        return ",".join(self.plain(value))


def _targets(raw: object) -> list[Target]:
    if isinstance(raw, Target):
        return [_target(str(raw))]
    if isinstance(raw, str):
        return [_target(piece) for piece in split_outside(raw, ",;")]
    if isinstance(raw, Sequence):
        return [target for part in raw for target in _targets(part)]
    raise BadValue(f"{raw!r} is not a network such as {_EXAMPLE}")


def _target(text: str) -> Target:
    if text == _ANY:
        return Target()
    if found := _BRACKETED.fullmatch(text):
        network, port = found[1], found[2]
    elif text.count(":") == 1:
        network, _, port = text.partition(":")
    else:
        network, port = text, None
    try:
        whole = ipaddress.ip_network(network)
    except ValueError as problem:
        raise BadValue(
            f"{text!r} is neither {_ANY} nor a network such as {_EXAMPLE}: {problem}; host names are not possible"
        ) from None
    return Target(network=str(whole), port=0 if port is None else _port(text, port))


def _port(text: str, port: str) -> int:
    if not re.fullmatch("[0-9]{1,5}", port, re.ASCII) or not 0 < int(port) <= _MOST_PORT:
        raise BadValue(f"{text!r}: {port!r} is not a port (1 to {_MOST_PORT})")
    return int(port)
