"""Label and field selectors: which objects a list or a watch is about.

A mapping means equality, `{"app": "elasticdl"}`. A sequence of requirements says more: `[not_equal("phase", "Failed"),
is_in("tier", "a", "b"), exists("queue")]`. All of them must hold. The API server knows only equality and inequality of
fields; other operators there are a mistake of the caller and raise `ValueError`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


class Operator(enum.Enum):
    EQUAL = "="
    NOT_EQUAL = "!="
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    ABSENT = "!"


@dataclass(frozen=True, kw_only=True)
class Requirement:
    key: str
    operator: Operator
    values: tuple[str, ...] = ()


Selector = Mapping[str, str] | Sequence[Requirement]

_OF_FIELDS = (Operator.EQUAL, Operator.NOT_EQUAL)


def equal(key: str, value: str) -> Requirement:
    return Requirement(key=key, operator=Operator.EQUAL, values=(value,))


def not_equal(key: str, value: str) -> Requirement:
    """Holds for objects without the label, too."""
    return Requirement(key=key, operator=Operator.NOT_EQUAL, values=(value,))


def is_in(key: str, *values: str) -> Requirement:
    return _set_based(key, Operator.IN, values)


def not_in(key: str, *values: str) -> Requirement:
    """Holds for objects without the label, too."""
    return _set_based(key, Operator.NOT_IN, values)


def exists(key: str) -> Requirement:
    return Requirement(key=key, operator=Operator.EXISTS)


def absent(key: str) -> Requirement:
    return Requirement(key=key, operator=Operator.ABSENT)


def selector_query(labels: Selector | None, fields: Selector | None) -> dict[str, str]:
    """Returns the parameters of a list or watch request."""
    query = {}
    if labels:
        query["labelSelector"] = ",".join(_label_term(each) for each in _requirements(labels))
    if fields:
        query["fieldSelector"] = ",".join(_field_term(each) for each in _requirements(fields))
    return query


def _set_based(key: str, operator: Operator, values: tuple[str, ...]) -> Requirement:
    if not values:
        raise ValueError(f"The selector {key} {operator.value} () names no value.")
    return Requirement(key=key, operator=operator, values=values)


def _requirements(selector: Selector) -> Sequence[Requirement]:
    if isinstance(selector, Mapping):
        return [equal(key, value) for key, value in selector.items()]
    return selector


def _label_term(requirement: Requirement) -> str:
    key, operator = requirement.key, requirement.operator
    if operator is Operator.EXISTS:
        return key
    if operator is Operator.ABSENT:
        return f"!{key}"
    if operator in (Operator.IN, Operator.NOT_IN):
        return f"{key} {operator.value} ({','.join(requirement.values)})"
    return f"{key}{operator.value}{requirement.values[0]}"


def _field_term(requirement: Requirement) -> str:
    if requirement.operator not in _OF_FIELDS:
        raise ValueError(
            f"Field selectors know = and != only, not {requirement.operator.value!r} (field {requirement.key})."
        )
    value = requirement.values[0]
    for special in ("\\", ",", "="):
        value = value.replace(special, f"\\{special}")
    return f"{requirement.key}{requirement.operator.value}{value}"
