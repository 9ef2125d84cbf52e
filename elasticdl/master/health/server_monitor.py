"""Parameter servers that do not answer: decided by what comes of the questions that all of them are asked every second.

A process that hangs, or one on a machine that cannot be reached, is still running for the platform, and whoever pushes
waits for it. So one that stays silent is taken for lost. Not part of the state that is written down: a master that
comes back begins to ask anew.

Failure modes
    The master itself stands still for a while: when it goes on, one question has not been answered in time. That is
    when counting begins, so everybody is asked again before anybody is given up.
"""

from __future__ import annotations

from collections.abc import Mapping

from elasticdl.master.settings import JobSettings

# Of the time that workers are given: who waits for a server must not be blamed first.
_PART_OF_FLOOR = 0.5
# So much longer a silent server is waited for whose loss would be that of the model.
IRREPLACEABLE = 4.0


def longest_silence(plan: JobSettings) -> float:
    """So many seconds after its last answer a server is given up in any case."""
    return IRREPLACEABLE * _patience(plan)


def _patience(plan: JobSettings) -> float:
    return _PART_OF_FLOOR * plan.stall_floor_seconds if plan.stall_factor else float("inf")


class Silence:
    def __init__(self, plan: JobSettings) -> None:
        self._patience = _patience(plan)
        self._since: dict[str, float] = {}

    def asked(self, answered: Mapping[str, bool], now: float) -> None:
        """All servers there are have been asked, by their names; these have answered, or not in time."""
        self._since = {name: self._since.get(name, now) for name, heard in answered.items() if not heard}

    @property
    def silent(self) -> list[str]:
        """Those that have not answered the last question."""
        return list(self._since)

    def too_long(self, now: float, *, times: float = 1.0) -> list[str]:
        """Those that have been silent for so many times as long as one may be."""
        return [name for name, since in self._since.items() if now - since >= times * self._patience]

    def lasting(self, now: float) -> dict[str, float]:
        """Those that are silent, and for how many seconds."""
        return {name: now - since for name, since in self._since.items()}

    def give_up(self, name: str) -> None:
        """It is ended; if it is there all the same, its time begins anew."""
        del self._since[name]
