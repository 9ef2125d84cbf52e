"""When a node that takes another one's place may be started: at once, unless that would only be in vain again.

Whoever is ended by somebody else is replaced without limit, and the first time without delay. But a machine that takes
no pod, or a program that something ends as soon as it begins, must not make new nodes as fast as the cluster can. So
where one node after the other has ended within seconds of its start, and has done nothing, the pause before the next
one doubles. One of them that gets anything done, or just lives, puts an end to it. A program that fails by itself is
tried again after such pauses from the first time on; how often, the roster knows.

Not part of the state that is written down: a master that comes back tries at once.
"""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.master.lifecycle.roster import Node
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus

_LONGEST_PAUSE_SECONDS = 30.0
# Who has lived for so long was not ended by what meets every node at its start.
_BEGINNING_SECONDS = 10.0


class Pauses:
    """`after_failures`: nodes run a program of the user's own."""

    def __init__(self, clock: Callable[[], float], *, after_failures: bool) -> None:
        self._clock = clock
        self._after_failures = after_failures
        self._begun: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        # By role and place: how many have ended in a row that had done nothing.
        self._in_vain: dict[tuple[str, int], int] = {}

    def started(self, name: str) -> None:
        """It has been asked for, or has begun to run."""
        self._begun[name] = self._clock()
        self._not_before.pop(name, None)

    def seen(self, node: Node, status: NodeStatus, *, moved: bool) -> None:
        """What the platform says of a node that it has not yet said. `moved`: it has got something done."""
        leaving = status.phase is NodePhase.LEAVING
        if not leaving and status.phase not in (NodePhase.SUCCEEDED, NodePhase.FAILED):
            return
        begun, place = self._begun.pop(node.name, None), (node.role, node.slot)
        if begun is None or node.draining or not (leaving or status.reason is EndReason.KILLED):
            return
        if moved or self._clock() - begun > _BEGINNING_SECONDS:
            self._in_vain.pop(place, None)
        else:
            self._in_vain[place] = self._in_vain.get(place, 0) + 1

    def pause(self, node: Node) -> float:
        """Seconds until this node may be started."""
        pause = _doubled(self._in_vain.get((node.role, node.slot), 0) - 1)
        if self._after_failures:
            pause = max(pause, _doubled(node.failures))
        if not pause:
            return 0.0
        due = self._not_before.setdefault(node.name, self._clock() + pause)
        return max(0.0, due - self._clock())

    def waits(self, name: str) -> bool:
        """It is to be started, and has not been."""
        return name in self._not_before


def _doubled(times: int) -> float:
    if times <= 0:
        return 0.0
    # As a whole number: nobody knows how often.
    return min(_LONGEST_PAUSE_SECONDS, 1 << (times - 1))
