"""An extended resource for one measurement, on one node: no other pods use it, none are preempted for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from benchmarks.kubernetes.place import Place


@contextlib.contextmanager
def offered(place: Place, name: str, amount: int) -> Iterator[None]:
    """Gives the first machine so many of the resource."""
    node = place.machines()[0]
    _offer(place, node, name, str(amount))
    try:
        yield
    finally:
        _offer(place, node, name, None)


def _offer(place: Place, node: str, name: str, amount: str | None) -> None:
    """Publishes an extended resource, as a device plugin does."""
    room = {name: amount}
    place.change(f"/api/v1/nodes/{node}/status", {"status": {"capacity": room, "allocatable": room}})
