"""A node's first replacement starts at once; after several early exits in a row, replacements start with backoff."""

from __future__ import annotations

import pytest

from elasticdl.master.health.restart_backoff import RestartBackoff, RestartDelay
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus

PLACE = ("worker", 0)


class Slot:
    """One place of a job, and the nodes that take it one after the other."""

    def __init__(self, *, after_failures: bool = False) -> None:
        self.now = 100.0
        self.backoff = RestartBackoff(after_failures=after_failures)
        self.number = 0

    @property
    def name(self) -> str:
        return f"worker-{self.number}"

    def delay(self, failures: int = 0) -> float:
        delay = self.backoff.delay(self.name, self.now, place=PLACE, failures=failures)
        return delay.seconds if delay is not None else 0.0

    def exit(
        self,
        *,
        after: float = 1.0,
        has_progressed: bool = False,
        phase: NodePhase = NodePhase.FAILED,
        reason: EndReason = EndReason.KILLED,
    ) -> float:
        """Returns the delay of the next one."""
        self.backoff.node_started(self.name, self.now)
        self.now += after
        self.observe(phase, reason, has_progressed=has_progressed)
        self.number += 1
        return self.delay()

    def observe(self, phase: NodePhase, reason: EndReason, *, has_progressed: bool = False) -> None:
        status = NodeStatus(name=self.name, role="worker", phase=phase, reason=reason)
        self.backoff.node_observed(
            status, self.now, place=PLACE, is_draining=False, has_progressed=has_progressed
        )


def test_first_replacement_starts_at_once_and_then_delays_double_up_to_a_cap() -> None:
    slot = Slot()
    assert [slot.exit() for _ in range(9)] == [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_number_of_replacements_is_unlimited() -> None:
    slot = Slot()
    assert {slot.exit() for _ in range(5000)} == {0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0}


@pytest.mark.parametrize(("after", "has_progressed"), [(1.0, True), (11.0, False)])
def test_node_that_lives_or_makes_progress_resets_the_backoff(after: float, has_progressed: bool) -> None:
    slot = Slot()
    assert [slot.exit() for _ in range(4)][-1] == 4.0
    assert slot.exit(after=after, has_progressed=has_progressed) == 0.0
    assert [slot.exit() for _ in range(3)] == [0.0, 1.0, 2.0]


def test_node_that_is_replaced_while_it_leaves_counts_once() -> None:
    slot = Slot()
    assert [slot.exit(phase=NodePhase.LEAVING, reason=EndReason.NONE) for _ in range(3)] == [0.0, 1.0, 2.0]
    slot.number -= 1
    slot.observe(NodePhase.FAILED, EndReason.KILLED)
    slot.number += 1
    assert slot.exit() == 4.0


@pytest.mark.parametrize("reason", [EndReason.STOPPED, EndReason.ERROR, EndReason.OUT_OF_MEMORY])
def test_other_ends_are_no_early_exits(reason: EndReason) -> None:
    slot = Slot()
    assert [slot.exit(reason=reason) for _ in range(4)] == [0.0] * 4


def test_draining_node_that_is_killed_is_no_early_exit() -> None:
    slot = Slot()
    for _ in range(4):
        slot.backoff.node_started(slot.name, slot.now)
        status = NodeStatus(name=slot.name, role="worker", phase=NodePhase.FAILED, reason=EndReason.KILLED)
        slot.backoff.node_observed(status, slot.now, place=PLACE, is_draining=True, has_progressed=False)
        slot.number += 1
    assert slot.delay() == 0.0


def test_delay_passes_with_time() -> None:
    slot = Slot()
    assert [slot.exit() for _ in range(3)][-1] == 2.0
    slot.now += 1.5
    waiting = slot.backoff.delay("worker-3", slot.now, place=PLACE, failures=0)
    assert waiting == RestartDelay(seconds=0.5, exits=3)
    assert slot.backoff.is_waiting("worker-3")
    slot.now += 1.0
    assert slot.delay() == 0.0
    slot.backoff.node_started("worker-3", slot.now)
    assert not slot.backoff.is_waiting("worker-3")


def test_failed_programs_restart_with_backoff_from_the_first_failure_on() -> None:
    slot = Slot(after_failures=True)
    delays = []
    for failures in (0, 1, 2, 3, 9):
        slot.number += 1
        delays.append(slot.delay(failures))
    assert delays == [0.0, 1.0, 2.0, 4.0, 30.0]
    assert Slot().delay(failures=3) == 0.0
