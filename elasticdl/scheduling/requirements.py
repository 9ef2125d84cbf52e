"""The requirements of pods on machines: resources, and the taints that they tolerate.

All quantities are integers in the smallest unit (CPU in milli-CPU, memory in bytes, GPUs by count), so that sums are
exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from elasticdl.scheduling.errors import SchedulingInputError

Resources = Mapping[str, int]
# How many pods a machine takes, as Kubernetes names it. Every pod takes one, whatever else it requests.
PODS = "pods"
# A machine that does not say takes as many as anyone asks for.
UNLIMITED_PODS = 2**30


def check_resources(owner: str, field_name: str, resources: Resources) -> None:
    """Raises if a quantity is no non-negative integer."""
    for name, quantity in resources.items():
        if not isinstance(quantity, int) or isinstance(quantity, bool) or quantity < 0:
            raise SchedulingInputError(
                f"{owner}: {field_name}[{name!r}] is {quantity!r}; use a non-negative integer "
                "(milli-CPU, bytes, or a count)"
            )


class TaintEffect(Enum):
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, kw_only=True)
class Taint:
    key: str
    value: str = ""
    effect: TaintEffect = TaintEffect.NO_SCHEDULE


@dataclass(frozen=True, kw_only=True)
class Toleration:
    """Matches taints as Kubernetes does: `key` None matches all keys, `value` None all values, `effect` None all."""

    key: str | None = None
    value: str | None = None
    effect: TaintEffect | None = None

    def matches(self, taint: Taint) -> bool:
        return (
            (self.key is None or self.key == taint.key)
            and (self.value is None or self.value == taint.value)
            and (self.effect is None or self.effect is taint.effect)
        )
