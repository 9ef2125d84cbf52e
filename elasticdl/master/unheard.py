"""Nodes that run and of which nothing is heard: those that have not joined, and parameter servers that do not answer.

What is done about them is decided elsewhere (`liveness.py`, `silence.py`), and may come late, or never if that was
asked for; meanwhile the whole job may stand still. So people are told whom it waits for and since when: once in the
log, and in the status as long as it lasts.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping

from elasticdl.master.liveness import Liveness
from elasticdl.master.plan import Plan
from elasticdl.master.silence import Silence, longest_silence

log = logging.getLogger("elasticdl.master")

# Who is only slow has begun by then, and who is only busy has answered.
_TELL_SECONDS = 30.0


class Unheard:
    def __init__(
        self,
        plan: Plan,
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
        unjoined, silent = self._liveness.unjoined(now), self._silence.lasting(now)
        lasting = {
            name: seconds for name, seconds in {**unjoined, **silent}.items() if seconds >= _TELL_SECONDS
        }
        before = self._since
        # The same moment each time, or it would look like news.
        self._since = {name: before.get(name, self._wall_clock() - lasting[name]) for name in lasting}
        for name in lasting.keys() - before.keys():
            if name in unjoined:
                self._tell(
                    name,
                    "runs and has not joined",
                    self._plan.start_timeout_seconds,
                    "--start_timeout_seconds",
                )
            else:
                self._tell(name, "runs and does not answer", longest_silence(self._plan), "--stall_factor")

    def _tell(self, name: str, what: str, limit: float, flag: str) -> None:
        waited = f"at most {limit:g} s" if 0 < limit < math.inf else f"for ever ({flag}=0)"
        moment = time.strftime("%H:%M:%S", time.localtime(self._since[name]))
        log.warning(
            "%s %s: nothing is heard of it since %s. It is waited for, %s.", name, what, moment, waited
        )
