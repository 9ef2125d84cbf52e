"""A network that heeds NetworkPolicies, as far as jobs use them.

The network of a cluster of our own is a bridge that lets all connections through. Where a test wants to see who is kept
out, this does what a cluster's network plugin does: it looks at policies and pods again and again, and writes what
follows from them into the filter that all packets between pods pass.
"""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
# Of pods and policies: both, at one moment.
Look = Callable[[], tuple[Sequence[Document], Sequence[Document]]]

_LOOK_SECONDS = 0.3
_CHAINS = ("FORWARD", "INPUT")


@dataclass(frozen=True, kw_only=True, order=True)
class Destination:
    """What a pod may connect to."""

    # "" is any.
    network: str = ""
    # 0: all ports, of all protocols.
    port: int = 0
    protocol: str = ""


def who_reaches(pods: Sequence[Document], policies: Sequence[Document]) -> dict[str, set[str]]:
    """The addresses that may connect to each pod's. Pods that no policy is about are not named: all may reach them."""
    found: dict[str, set[str]] = {}
    for policy in policies:
        spec = _spec(policy)
        if "Ingress" not in spec["policyTypes"]:
            continue
        allowed = {
            address
            for rule in spec.get("ingress", [])
            for peer in _known(rule, "from")["from"]
            for address in _addresses(pods, _known(peer, "podSelector")["podSelector"])
        }
        for address in _addresses(pods, spec["podSelector"]):
            found.setdefault(address, set()).update(allowed)
    return found


def what_is_reached(pods: Sequence[Document], policies: Sequence[Document]) -> dict[str, set[Destination]]:
    """What each pod, by its address, may connect to. Pods that no policy is about are not named: they reach all."""
    found: dict[str, set[Destination]] = {}
    for policy in policies:
        spec = _spec(policy)
        if "Egress" not in spec["policyTypes"]:
            continue
        allowed = {each for rule in spec.get("egress", []) for each in _destinations(pods, rule)}
        for address in _addresses(pods, spec["podSelector"]):
            found.setdefault(address, set()).update(allowed)
    return found


@contextlib.contextmanager
def heeded(look: Look) -> Iterator[None]:
    """Watches from the beginning of the block to its end, in the cluster's network.

    Raises what has kept it from looking, at the end: what was seen until then may not be what policies say.
    """
    # Several tests at once write what is theirs.
    chain = f"TEST-{uuid.uuid4().hex[:8]}"
    written: list[str] = []
    failures: list[Exception] = []
    over = threading.Event()

    def write() -> None:
        pods, policies = look()
        rules = _rules(chain, who_reaches(pods, policies), what_is_reached(pods, policies))
        if rules != written:
            _restore([f":{chain} - [0:0]", f":{chain}-IN - [0:0]", *rules])
            written[:] = rules

    def go_on() -> None:
        while not over.wait(_LOOK_SECONDS):
            try:
                write()
            except Exception as error:  # noqa: BLE001 - raised at the end, by who has begun it
                failures.append(error)
                return

    write()
    # What is for the machine itself, the API server say, is not forwarded.
    _restore([f"-I {each} -j {chain}" for each in _CHAINS])
    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _restore(
            [
                *(f"-D {each} -j {chain}" for each in _CHAINS),
                *(f"-F {each}" for each in (chain, f"{chain}-IN")),
                *(f"-X {each}" for each in (chain, f"{chain}-IN")),
            ]
        )
        if failures:
            raise failures[0]


def _rules(chain: str, reached: dict[str, set[str]], reaches: dict[str, set[Destination]]) -> list[str]:
    """Returns the rules of two chains, the first for what goes out; established connections stay."""
    rules = [f"-A {chain} -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN"]
    for address, allowed in sorted(reaches.items()):
        rules += [f"-A {chain} -s {address}{_matches(to)} -g {chain}-IN" for to in sorted(allowed)]
        rules.append(f"-A {chain} -s {address} -j DROP")
    rules.append(f"-A {chain} -g {chain}-IN")
    for address, sources in sorted(reached.items()):
        rules += [f"-A {chain}-IN -s {source} -d {address} -j RETURN" for source in sorted(sources)]
        rules.append(f"-A {chain}-IN -d {address} -j DROP")
    return rules


def _matches(to: Destination) -> str:
    network = f" -d {to.network}" if to.network else ""
    return f"{network} -p {to.protocol.lower()} --dport {to.port}" if to.port else network


def _restore(lines: Sequence[str]) -> None:
    """All of it at once."""
    text = "\n".join(["*filter", *lines, "COMMIT", ""])
    subprocess.run(["iptables-restore", "--noflush", "--wait"], input=text, text=True, check=True)


def _spec(policy: Document) -> Document:
    spec = _known(policy["spec"], "podSelector", "policyTypes", "ingress", "egress")
    if unknown := {*spec["policyTypes"]} - {"Ingress", "Egress"}:
        raise NotImplementedError(f"a policy of {sorted(unknown)}")
    return spec


def _destinations(pods: Sequence[Document], rule: Document) -> Iterator[Destination]:
    _known(rule, "to", "ports")
    networks = [network for peer in rule["to"] for network in _networks(pods, peer)] if "to" in rule else [""]
    ports = [_known(port, "protocol", "port") for port in rule.get("ports", [{"port": 0, "protocol": ""}])]
    for network, port in itertools.product(networks, ports):
        yield Destination(network=network, port=port["port"], protocol=port["protocol"])


def _networks(pods: Sequence[Document], peer: Document) -> list[str]:
    _known(peer, "podSelector", "ipBlock")
    if "ipBlock" in peer:
        return [str(_known(peer["ipBlock"], "cidr")["cidr"])]
    return _addresses(pods, peer["podSelector"])


def _addresses(pods: Sequence[Document], selector: Document) -> list[str]:
    return [_address(pod) for pod in pods if _selects(selector, pod) and _address(pod)]


def _selects(selector: Document, pod: Document) -> bool:
    _known(selector, "matchLabels", "matchExpressions")
    labels = pod["metadata"].get("labels", {})
    for each in selector.get("matchExpressions", []):
        if each["operator"] != "In":
            raise NotImplementedError(f"{each['operator']} in a selector")
        if labels.get(each["key"]) not in each["values"]:
            return False
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def _address(pod: Document) -> str:
    return str(pod.get("status", {}).get("podIP", ""))


def _known(part: Document, *fields: str) -> Document:
    """What is not understood here must not count as heeded."""
    if unknown := part.keys() - {*fields}:
        raise NotImplementedError(f"{sorted(unknown)} in a NetworkPolicy")
    return part
