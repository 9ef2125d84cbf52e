"""A resource that only one test requests, on one machine: no other pod takes it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

from e2e.kubernetes.conftest import Kubectl, machines


@contextlib.contextmanager
def offered(kubectl: Kubectl, name: str, amount: int) -> Iterator[str]:
    """The first machine has so many of it; yields the machine."""
    machine = machines(kubectl)[0]
    offer(kubectl, machine, name, amount)
    try:
        yield machine
    finally:
        offer(kubectl, machine, name, 0)


def offer(kubectl: Kubectl, machine: str, name: str, amount: int) -> None:
    """Publishes an extended resource, as a device plugin does."""
    node = kubectl.get("node", machine)
    # Overwrites concurrent changes.
    del node["metadata"]["resourceVersion"]
    node["status"]["capacity"][name] = str(amount)
    node["status"]["allocatable"][name] = str(amount)
    kubectl("replace", f"--raw=/api/v1/nodes/{machine}/status", "--filename=-", text=json.dumps(node))
