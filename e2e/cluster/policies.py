"""A network that heeds NetworkPolicies, as far as jobs use them.

The network of a cluster of our own is a bridge that lets everybody through. Where a test wants to see who is kept out,
this does what a cluster's network plugin does: it looks at policies and pods again and again, and writes what follows
from them into the filter that all packets between pods pass.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Document = dict[str, Any]
# Of pods and policies: both, at one moment.
Look = Callable[[], tuple[Sequence[Document], Sequence[Document]]]

_LOOK_SECONDS = 0.3


def who_reaches(pods: Sequence[Document], policies: Sequence[Document]) -> dict[str, set[str]]:
    """The addresses that may connect to each pod's. Pods that no policy is about are not named: all may reach them."""
    found: dict[str, set[str]] = {}
    for policy in policies:
        spec = _known(policy["spec"], "podSelector", "policyTypes", "ingress")
        if spec["policyTypes"] != ["Ingress"]:
            raise NotImplementedError(f"a policy of {spec['policyTypes']}")
        peers = [
            _known(peer, "podSelector")["podSelector"]
            for rule in spec.get("ingress", [])
            for peer in _known(rule, "from")["from"]
        ]
        allowed = {_address(pod) for pod in pods for peer in peers if _selects(peer, pod)} - {""}
        for pod in pods:
            if _selects(spec["podSelector"], pod) and _address(pod):
                found.setdefault(_address(pod), set()).update(allowed)
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
        rules = _rules(chain, who_reaches(*look()))
        if rules != written:
            _restore([f":{chain} - [0:0]", *rules])
            written[:] = rules

    def go_on() -> None:
        while not over.wait(_LOOK_SECONDS):
            try:
                write()
            except Exception as error:  # noqa: BLE001 - raised at the end, by who has begun it
                failures.append(error)
                return

    write()
    _restore([f"-I FORWARD -j {chain}"])
    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        _restore([f"-D FORWARD -j {chain}", f"-F {chain}", f"-X {chain}"])
        if failures:
            raise failures[0]


def _rules(chain: str, reached: dict[str, set[str]]) -> list[str]:
    """Returns the rules of a chain; established connections stay."""
    rules = [f"-A {chain} -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN"]
    for address, allowed in sorted(reached.items()):
        rules += [f"-A {chain} -s {source} -d {address} -j RETURN" for source in sorted(allowed)]
        rules.append(f"-A {chain} -d {address} -j DROP")
    return rules


def _restore(lines: Sequence[str]) -> None:
    """All of it at once."""
    text = "\n".join(["*filter", *lines, "COMMIT", ""])
    subprocess.run(["iptables-restore", "--noflush", "--wait"], input=text, text=True, check=True)


def _selects(selector: Document, pod: Document) -> bool:
    wanted = _known(selector, "matchLabels").get("matchLabels", {})
    return bool(wanted.items() <= pod["metadata"].get("labels", {}).items())


def _address(pod: Document) -> str:
    return str(pod.get("status", {}).get("podIP", ""))


def _known(part: Document, *fields: str) -> Document:
    """What is not understood here must not count as heeded."""
    if unknown := part.keys() - {*fields}:
        raise NotImplementedError(f"{sorted(unknown)} in a NetworkPolicy")
    return part
