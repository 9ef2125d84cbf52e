"""Requests as people write them (`cpu=500m, memory=8Gi`), for the sentences of decisions."""

from __future__ import annotations

from collections.abc import Mapping

from elasticdl.scheduling.requirements import PODS

_BINARY = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def request_text(requests: Mapping[str, int]) -> str:
    """Returns the requests of one instance, given in the planner's units. Nothing is rounded. That it is a pod goes
    without saying.
    """
    parts = [
        f"{name}={_amount(name, amount)}" for name, amount in requests.items() if amount and name != PODS
    ]
    return ", ".join(parts) or "no requests"


def _amount(name: str, amount: int) -> str:
    if name == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if name == "memory":
        for suffix, unit in _BINARY:
            if amount % unit == 0:
                return f"{amount // unit}{suffix}"
    return str(amount)
