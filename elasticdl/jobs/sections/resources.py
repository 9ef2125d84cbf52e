"""The resources that a node requests, in the grammar of Kubernetes: `cpu=0.5,memory=2Gi,gpu=1`.

Checked here for every job, wherever it runs. Comparisons and sums are exact: they are made on whole numbers of base
units (thousandths of a CPU, bytes, devices), never on floating-point numbers.

A limit of memory is what a node may grow to. It begins with what it requests, and the replacement of a node that
ran out of memory gets twice as much, up to the limit: so the next attempt has more memory than the one before it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from elasticdl.jobs.flags.grammar import Grammar, Rule
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.flags.pairs import BadValue, format_pairs, parse_pairs

_POWERS = {
    **{letter: Fraction(1, 1000**power) for power, letter in enumerate(("", "m", "u", "n"))},
    **{letter: Fraction(1000) ** power for power, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Fraction(1024) ** power for power, letter in enumerate("KMGTPE", start=1)},
}
_QUANTITY = re.compile(
    r"\+?([0-9]{1,18}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(?:[eE]([+-]?[0-9]{1,2})|([A-Za-z]*))", re.ASCII
)

# How far memory grows beyond a request where no limit says it: enough for a guess that was wrong, and not for a leak.
_GROWTH_WITHOUT_LIMIT = 4

GPU = "nvidia.com/gpu"
_SHORT_NAMES = {"gpu": GPU, "disk": "ephemeral-storage"}
_PLAIN_NAMES = ("cpu", "memory", "ephemeral-storage")
_DEVICE = Rule(
    pattern=r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?",
    words="a resource: cpu, memory, gpu, disk, or a device such as nvidia.com/gpu",
)


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """An amount as it was written, and the number that it is."""

    text: str

    @property
    def amount(self) -> Fraction:
        match = _QUANTITY.fullmatch(self.text)
        if match is None or (match[3] or "") not in _POWERS:
            raise BadValue(f"{self.text!r} is not a quantity such as 0.5, 250m, 2048Mi or 2G")
        return Fraction(match[1]) * (_POWERS[match[3]] if match[2] is None else Fraction(10) ** int(match[2]))

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The request or the limit of one node. None: not given."""

    cpu: Quantity | None = None
    memory: Quantity | None = None
    ephemeral_storage: Quantity | None = None
    # Whole devices by the name that Kubernetes knows them under ("nvidia.com/gpu").
    devices: dict[str, Quantity] = field(default_factory=dict)

    def by_name(self) -> dict[str, Quantity]:
        """Everything that was said, by the names of Kubernetes."""
        named = {"cpu": self.cpu, "memory": self.memory, "ephemeral-storage": self.ephemeral_storage}
        return {**{name: quantity for name, quantity in named.items() if quantity}, **self.devices}

    # -- arithmetic; what was not said counts as nothing -----------------------------------------------------

    def to_units(self) -> dict[str, int]:
        """Returns base units by the names of Kubernetes: thousandths of a CPU, bytes, devices.

        Less than a thousandth of a CPU is rounded up, as Kubernetes does.
        """
        return {
            name: math.ceil(quantity.amount * _UNITS_PER.get(name, 1))
            for name, quantity in self.by_name().items()
        }

    @classmethod
    def from_units(cls, units: Mapping[str, int]) -> Resources:
        """Returns the resources of these base units. Zeros are left out. Raises `ValueError` for negative ones."""
        if negative := [f"{name} {count}" for name, count in units.items() if count < 0]:
            raise ValueError(f"Resources cannot be negative: {', '.join(negative)}")
        made = {name: _quantity(name, count) for name, count in units.items() if count}
        return cls(
            cpu=made.pop("cpu", None),
            memory=made.pop("memory", None),
            ephemeral_storage=made.pop("ephemeral-storage", None),
            devices=made,
        )

    @classmethod
    def zero(cls) -> Resources:
        return cls()

    def __add__(self, other: Resources) -> Resources:
        mine, others = self.to_units(), other.to_units()
        return Resources.from_units(
            {name: mine.get(name, 0) + others.get(name, 0) for name in {**mine, **others}}
        )

    def __sub__(self, other: Resources) -> Resources:
        """Raises `ValueError` if `other` does not fit into this."""
        mine, others = self.to_units(), other.to_units()
        return Resources.from_units(
            {name: mine.get(name, 0) - others.get(name, 0) for name in {**mine, **others}}
        )

    def __mul__(self, count: int) -> Resources:
        return Resources.from_units({name: units * count for name, units in self.to_units().items()})

    __rmul__ = __mul__

    def fits_into(self, capacity: Resources) -> bool:
        """Returns whether no resource exceeds the capacity. A capacity that is not said is nothing."""
        available = capacity.to_units()
        return all(units <= available.get(name, 0) for name, units in self.to_units().items())

    def is_same_amount(self, other: Resources) -> bool:
        """Returns whether the amounts are equal, however they are written: 1Gi is 1024Mi."""
        return self.fits_into(other) and other.fits_into(self)

    def beyond(self, limit: Resources) -> list[str]:
        """Lists the resources of this request that exceed a limit, one line each."""
        limits = limit.by_name()
        return [
            f"{name}={quantity} is more than its limit {limits[name]}"
            for name, quantity in self.by_name().items()
            if name in limits and quantity.amount > limits[name].amount
        ] + [
            f"{name}={quantity} differs from its limit {limits[name]}; devices are not shared"
            for name, quantity in self.devices.items()
            if name in limits and quantity.amount < limits[name].amount
        ]

    def __bool__(self) -> bool:
        return bool(self.by_name())

    def __str__(self) -> str:
        return ",".join(f"{name}={quantity}" for name, quantity in self.by_name().items())


def most_memory(request: Resources, limit: Resources) -> Quantity | None:
    """Returns the memory that a node may grow to. None: all of its machine."""
    if limit.memory is not None or request.memory is None:
        return limit.memory
    return _bytes(request.memory.amount * _GROWTH_WITHOUT_LIMIT)


def grown_memory(
    request: Resources, limit: Resources, *, times: int, whole: bool = False
) -> tuple[Quantity | None, Quantity | None]:
    """The memory that a node is promised and that it may use, after it ran out of memory so many times.

    `whole`: it may use all of its limit from the beginning. None: nothing is said of it to Kubernetes, which takes a
    limit for a promise too.
    """
    most = most_memory(request, limit)
    if most is None or request.memory is None:
        return None, most
    promised = request.memory
    if times:
        amount = min(promised.amount * 2**times, most.amount)
        promised = most if amount == most.amount else _bytes(amount)
    return promised, limit.memory if whole and limit.memory is not None else promised


# Base units per unit of Kubernetes; 1 for bytes and devices.
_UNITS_PER = {"cpu": 1000}


def _quantity(name: str, units: int) -> Quantity:
    if name == "cpu":
        return Quantity(text=str(units // 1000) if units % 1000 == 0 else f"{units}m")
    return _bytes(Fraction(units)) if name in _PLAIN_NAMES else Quantity(text=str(units))


def _bytes(amount: Fraction) -> Quantity:
    mebibytes = amount / 2**20
    return Quantity(text=f"{mebibytes}Mi" if mebibytes.denominator == 1 else str(int(amount)))


class ResourcesGrammar(Grammar[Resources]):
    metavar = "cpu=N,memory=N,..."

    def parse(self, raw: object) -> Resources:
        if isinstance(raw, Resources):
            raw = {name: quantity.text for name, quantity in raw.by_name().items()}
        result: dict[str, Quantity] = {}
        for written, text in parse_pairs(raw, example="cpu=1,memory=2Gi").items():
            name = _SHORT_NAMES.get(written, written)
            if name in result:
                raise BadValue(f"{name} is given twice")
            if name not in _PLAIN_NAMES:
                _check_device(name)
            result[name] = _checked(name, Quantity(text=text.strip()))
        return Resources(
            cpu=result.pop("cpu", None),
            memory=result.pop("memory", None),
            ephemeral_storage=result.pop("ephemeral-storage", None),
            devices=result,
        )

    def plain(self, value: Resources) -> dict[str, str]:
        return {name: quantity.text for name, quantity in value.by_name().items()}

    def text(self, value: Resources) -> str:
        return format_pairs(self.plain(value))


def _check_device(name: str) -> None:
    if "/" not in name:
        guess = did_you_mean(name, [*_PLAIN_NAMES, *_SHORT_NAMES])
        raise BadValue(f"{name!r} is not {_DEVICE.words}.{guess}")
    _DEVICE.check(name)


def _checked(name: str, quantity: Quantity) -> Quantity:
    try:
        amount = quantity.amount
    except BadValue as problem:
        raise BadValue(f"{name}: {problem}{_unit_hint(quantity.text)}") from None
    if name in ("memory", "ephemeral-storage") and amount.denominator != 1:
        raise BadValue(
            f"{name}: {quantity} is not a whole number of bytes (m is a thousandth; Mi and M are millions)"
        )
    if name not in _PLAIN_NAMES and amount.denominator != 1:
        raise BadValue(f"{name}: {quantity} is not a whole number of devices")
    return quantity


def _unit_hint(text: str) -> str:
    unit = text.lstrip("+0123456789.")
    for end in ("i", ""):
        right = unit.rstrip("bB").removesuffix("i").upper() + end
        if unit and right in _POWERS and right != "":
            return f"; did you mean {text[: len(text) - len(unit)]}{right}?"
    return ""
