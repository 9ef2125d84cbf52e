"""Nodes that run and of which nothing is heard: those that have not joined, parameter servers that do not answer, and
workers that cannot be reached.

What is done about them is decided elsewhere (`worker_monitor.py`, `server_monitor.py`), and may come late, or never
if that was asked for; meanwhile the whole job may stand still. So people are told whom it waits for and since when:
once in the log, and in the status as long as it lasts.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from elasticdl.master.health.server_monitor import Silence, longest_silence
from elasticdl.master.health.worker_monitor import Liveness
from elasticdl.master.settings import JobSettings

log = logging.getLogger("elasticdl.master")

# Who is only slow has begun by then, and who is only busy has answered.
_TELL_SECONDS = 30.0


class Unheard:
    def __init__(
        self,
        plan: JobSettings,
        *,
        liveness: Liveness,
        silence: Silence,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan
        self._liveness = liveness
        self._silence = silence
        self._wall_clock = wall_clock
        self._since: dict[str, float] = {}

    @property
    def since(self) -> Mapping[str, float]:
        """By their names, in seconds since 1970."""
        return self._since

    def look(self, now: float) -> None:
        plan = self._plan
        found = (
            (
                self._liveness.unjoined(now),
                "has not joined",
                _limit("start_timeout_seconds", plan.start_timeout_seconds, plan.start_timeout_seconds),
            ),
            (
                self._silence.lasting(now),
                "does not answer",
                _limit("stall_factor", plan.stall_factor, longest_silence(plan)),
            ),
            (
                self._liveness.cut_off(now),
                "cannot be reached",
                _limit("stall_factor", plan.stall_factor, plan.stall_floor_seconds, "at least"),
            ),
        )
        before, self._since = self._since, {}
        for nodes, what, limit in found:
            for name, seconds in nodes.items():
                if seconds < _TELL_SECONDS:
                    continue
                # The same moment each time, or it would look like news.
                self._since[name] = before.get(name, self._wall_clock() - seconds)
                if name not in before:
                    log.warning(
                        "%s runs and %s: nothing is heard of it since %s. It is waited for, %s.",
                        name,
                        what,
                        time.strftime("%H:%M:%S", time.localtime(self._since[name])),
                        limit,
                    )


def _limit(flag: str, value: float, seconds: float, how: str = "at most") -> str:
    return f"{how} {seconds:g} s" if value else f"for ever (--{flag}=0)"
