"""Copies of the model that parameter servers still keep, and nobody needs any more.

A copy is let go of as soon as it is written and evaluated (`checkpointer.py`). A master that is killed just before
that, or whose call does not arrive, leaves the copy behind, and with it the memory of everything that has changed
since. So servers are asked now and then what they keep, for the first time when a master begins, and what the state
does not know as needed goes.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from elasticdl.ps.checkpoint.checkpoint_folders import copied_cut
from elasticdl.ps.client.coordinator import Coordinator

if TYPE_CHECKING:
    from elasticdl.master.job_state import JobState
    from elasticdl.master.master import Master

log = logging.getLogger("elasticdl.master")

# A copy costs memory slowly, by what is trained.
_LOOK_SECONDS = 15.0


def is_left_over(state: JobState, name: str) -> bool:
    """A copy of a cut that is behind the job, and that is neither written nor evaluated any more."""
    cut = copied_cut(name)
    # A cut that has not been taken may be frozen already: it will be known when it has been.
    if cut is None or cut > state.cuts_passed:
        return False
    saved = state.saving is not None and state.saving.cut == cut
    evaluated = state.evaluation is not None and state.evaluation.number == cut
    return not saved and not evaluated


class Leftovers:
    """The clock and the calls."""

    def __init__(self, master: Master, servers: Coordinator) -> None:
        self._master = master
        self._servers = servers

    async def run(self) -> None:
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        state = self._master.state
        addresses = state.placing.addresses()
        if state.reclaim.is_collecting or not addresses:
            return
        # Of one that is gone the copies are, too; one that does not answer is asked again.
        statuses = await self._servers.status_all(addresses)
        names = {name for status in statuses.values() for name in status.frozen if is_left_over(state, name)}
        for name in sorted(names):
            log.info("The parameter servers let go of the copy %s, which was left behind.", name)
            await self._servers.release_all(addresses, name)
