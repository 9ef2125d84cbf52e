"""A document in sections, each a JSON text, so that only those that have changed are sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Sections = dict[str, str]
# The section that says why the others are old or missing.
PROBLEM = "problem"


def to_json(value: Any) -> str:
    """Returns JSON that browsers read: numbers that are not finite become null."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
