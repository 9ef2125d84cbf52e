"""Lines of several logs in the order in which they were written.

A line has a time from where it was written: the machine of a pod, or the keeper of a local job, to the second.
Programs that begin their lines with a time of their own say it more precisely. A log is never reordered: a line
comes at the time of the one before it or later.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache

from elasticdl.catalog.job import LogLine

# As `logging` writes it, glog's successors, or ISO 8601; perhaps in brackets, behind a level.
_OWN_TIME = re.compile(
    r"[\[(]?(?:[A-Z]{4,8} )?(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(Z|[+-]\d\d:?\d\d)?"
)
# A time that differs more from that of the file is something else, or a clock that is wrong.
_TRUSTED_SECONDS = 2.0


class LineClock:
    """The times of the lines of one log, in its order."""

    def __init__(self) -> None:
        self._last: float | None = None

    def moment(self, text: str, written: float | None) -> float | None:
        """Returns the time of the next line. `written`: as its file has it, to the second."""
        own = own_time(text)
        if own is None or (written is not None and abs(own - written) > _TRUSTED_SECONDS):
            own = written
        if own is not None:
            self._last = own if self._last is None else max(own, self._last)
        return self._last


def own_time(text: str) -> float | None:
    """Returns the time that a line begins with, in seconds since 1970. Without a zone it is local."""
    found = _OWN_TIME.match(text)
    if found is None:
        return None
    date, clock, fraction, zone = found.groups()
    whole = _seconds(date, clock, zone or "")
    return None if whole is None else whole + (float(f"0.{fraction}") if fraction else 0.0)


@lru_cache(maxsize=64)
def _seconds(date: str, clock: str, zone: str) -> float | None:
    try:
        if not zone:
            return time.mktime(time.strptime(f"{date} {clock}", "%Y-%m-%d %H:%M:%S"))
        offset = zone.replace("Z", "+0000").replace(":", "")
        return datetime.datetime.strptime(f"{date} {clock}{offset}", "%Y-%m-%d %H:%M:%S%z").timestamp()
    except (ValueError, OverflowError):
        return None


def place(line: LogLine) -> float:
    """The key to merge by. Lines without a time come first."""
    return line.moment if line.moment is not None else 0.0


def lines_since(lines: Iterable[LogLine], moment: float | None) -> Iterator[LogLine]:
    """Leaves out what is older. Lines without a time stay."""
    return (line for line in lines if moment is None or line.moment is None or line.moment >= moment)
