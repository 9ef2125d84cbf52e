"""The result of a check: the state of something, and what to do about it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(str, enum.Enum):
    """The severity of a finding. With an error, jobs do not run."""

    OK = "ok"
    # Not there, and not needed by everyone.
    ABSENT = "absent"
    WARNING = "warning"
    ERROR = "error"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class Finding:
    """`fix`: a shell command, or a sentence where no command can do it. Empty if nothing is to be done."""

    subject: str
    level: Level
    text: str
    fix: str = ""
