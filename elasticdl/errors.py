"""The one error that is meant for people.

Whatever a user can cause (a wrong flag, a missing file, a module that does not import, a full disk) is raised
as a `UserError`: what is wrong and where in the message, what to do about it in the hint. The command line
prints the two and exits; a traceback of ours reaches nobody for these.
"""

from __future__ import annotations


class UserError(Exception):
    """Something the user can put right."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message
