"""Initial values of a table's rows, by the names and options that a layer gives.

The numbers of a row are a pure function of the seed, the table's name, the id and the column (native/initializers.h):
the same row starts the same on any server and in any order, so rows that were never trained are not stored.

    uniform             low, high           -0.05, 0.05
    normal              mean, stddev        0, 0.05
    truncated_normal    mean, stddev        0, 0.05; within two deviations of the mean
    constant            value               0
    zeros
    glorot_uniform      fan_in, fan_out     the table's width, both: the number of rows is unknown
    glorot_normal       fan_in, fan_out
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

import numpy as np

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
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
# A fan of 0 stands for the table's width.
_NOT_NEGATIVE = ("stddev", "fan_in", "fan_out")
_LARGEST = float(np.finfo(np.float32).max)
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
        # The keys may be of any type.
        given: Mapping[str, Any] = self.options
        for option, value in given.items():
            if option not in known:
                raise UserError(
                    f"The initializer {self.kind} has no option {option!r}.{did_you_mean(option, known)}",
                    hint=f"It has: {', '.join(known) or 'none'}.",
                )
            if not isinstance(value, Real) or not math.isfinite(value):
                raise UserError(
                    f"The option {option} of the initializer {self.kind} is {value!r}, which is no number."
                )
        # As they are on the wire and in files, whatever kind of number they were given as.
        plain = {option: float(value) for option, value in self.options.items()}
        object.__setattr__(self, "options", plain)

    def check(self, table: str) -> None:
        """Raises `UserError` if rows of that table cannot start so."""
        where = f"The initializer {self.kind} of the table {table}"
        given = {**_OPTIONS[self.kind], **self.options}
        for option, value in given.items():
            if abs(value) > _LARGEST:
                raise UserError(f"{where} has {option} {value:g}, which is too large for float32.")
            if option in _NOT_NEGATIVE and value < 0:
                raise UserError(f"{where} has {option} {value:g}: 0 is the least.")
        if self.kind == "uniform" and given["low"] > given["high"]:
            raise UserError(
                f"{where} has low {given['low']:g} and high {given['high']:g}: there is nothing between.",
                hint="Are they the wrong way round?",
            )

    def __str__(self) -> str:
        return ", ".join([self.kind, *(f"{option}={value:g}" for option, value in self.options.items())])

    @property
    def mean(self) -> float:
        """Returns the mean of all initial values."""
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
