"""What the rows of a table start as, by the names and options that a layer gives.

The numbers of a row are a pure function of the seed, the table's name, the id and the column (native/initializers.h):
the same row starts the same on any server and in any order, so nobody has to remember rows that were never trained.

    uniform             low, high           -0.05, 0.05
    normal              mean, stddev        0, 0.05
    truncated_normal    mean, stddev        0, 0.05; within two deviations of the mean
    constant            value               0
    zeros
    glorot_uniform      fan_in, fan_out     the table's width, both: how many rows there will be nobody knows
    glorot_normal       fan_in, fan_out
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.jobs.errors import UserError
from elasticdl.jobs.nearest import did_you_mean
from elasticdl.ps import _kernels

_OPTIONS: dict[str, dict[str, float]] = {
    "uniform": {"low": -0.05, "high": 0.05},
    "normal": {"mean": 0.0, "stddev": 0.05},
    "truncated_normal": {"mean": 0.0, "stddev": 0.05},
    "constant": {"value": 0.0},
    "zeros": {},
    "glorot_uniform": {"fan_in": 0.0, "fan_out": 0.0},
    "glorot_normal": {"fan_in": 0.0, "fan_out": 0.0},
}
# The deviation of a normal distribution that is cut off at two deviations.
_DEVIATION_WITHIN_TWO = 0.87962566103423978


@dataclass(frozen=True, kw_only=True)
class Initializer:
    kind: str = "uniform"
    options: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        known = _OPTIONS.get(self.kind)
        if known is None:
            raise UserError(
                f"Tables have no initializer {self.kind!r}.{did_you_mean(self.kind, _OPTIONS)}",
                hint=f"They have: {', '.join(_OPTIONS)}.",
            )
        for option, value in self.options.items():
            if option not in known:
                raise UserError(
                    f"The initializer {self.kind} has no option {option!r}.{did_you_mean(option, known)}",
                    hint=f"It has: {', '.join(known) or 'none'}.",
                )
            if not math.isfinite(value):
                raise UserError(
                    f"The option {option} of the initializer {self.kind} is {value}, which is no number."
                )

    def __str__(self) -> str:
        return ", ".join([self.kind, *(f"{option}={value:g}" for option, value in self.options.items())])

    @property
    def mean(self) -> float:
        """Of all numbers that rows may start with."""
        given = {**_OPTIONS[self.kind], **self.options}
        if self.kind == "uniform":
            return (given["low"] + given["high"]) / 2
        return given.get("mean", given.get("value", 0.0))

    def kernel(self, *, seed: int, table: str, width: int) -> _kernels.Initializer:
        given = {**_OPTIONS[self.kind], **self.options}
        kind, a, b = self.kind, 0.0, 0.0
        if kind == "uniform":
            a, b = given["low"], given["high"]
        elif kind in ("normal", "truncated_normal"):
            a, b = given["mean"], given["stddev"]
        elif kind in ("constant", "zeros"):
            kind, a = "constant", given.get("value", 0.0)
        else:
            fans = (given["fan_in"] or width) + (given["fan_out"] or width)
            if kind == "glorot_uniform":
                b = math.sqrt(6.0 / fans)
                kind, a = "uniform", -b
            else:
                kind, b = "truncated_normal", math.sqrt(2.0 / fans) / _DEVIATION_WITHIN_TWO
        return _kernels.Initializer(kind, a, b, seed % (1 << 64), table)
