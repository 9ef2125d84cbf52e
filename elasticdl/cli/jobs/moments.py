"""Times on the command line: a duration such as 7d or 1h30m, and a moment, which is a duration ago or a date."""

from __future__ import annotations

import datetime
import re
import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from typing import Any

    # Generic for type checkers only.
    _ParamType = click.ParamType[float]
else:
    _ParamType = click.ParamType

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


class DurationType(_ParamType):
    """Seconds, from words such as 90s, 30m, 12h, 7d, 2w or 1h30m."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value)
        if not _DURATION.fullmatch(text):
            self.fail(
                f"{text!r} is no duration. Write for example 90s, 30m, 12h, 7d, 2w or 1h30m.", param, ctx
            )
        return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


class MomentType(DurationType):
    """Seconds since 1970, from a duration (so long ago) or from a date with or without a time."""

    name = "moment"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value)
        if _DURATION.fullmatch(text):
            return time.time() - super().convert(text, param, ctx)
        try:
            # Without a zone it is local time.
            return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError):
            self.fail(
                f"{text!r} is no moment. Write how long ago, for example 30m, 12h or 7d, or a date such as"
                " 2026-11-18 or '2026-11-18 16:30'.",
                param,
                ctx,
            )


DURATION, MOMENT = DurationType(), MomentType()
