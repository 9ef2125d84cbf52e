"""Scaling down drains the named victims first, then the newest nodes."""

from __future__ import annotations

from elasticdl.master.lifecycle.roster import Roster
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus


def roster(workers: int) -> Roster:
    made = Roster(max_failures=2, targets={"ps": 0, "worker": workers})
    for node in made.wanted():
        assert made.join(node.name, f"i-{node.name}", "here")
    return made


def draining(made: Roster) -> set[str]:
    return {node.name for node in made.nodes.values() if node.draining}


def end(made: Roster, name: str) -> None:
    made.observe(NodeStatus(name=name, role="worker", phase=NodePhase.FAILED, reason=EndReason.KILLED))


def test_scale_down_drains_the_victim_and_no_other() -> None:
    made = roster(4)
    made.scale("worker", 3, victims=["worker-1"])
    assert draining(made) == {"worker-1"}
    assert made.wanted() == []
    assert {node.slot for node in made.alive("worker") if not node.draining} == {0, 1, 2}


def test_scale_down_by_more_than_the_victims_drains_the_newest_too() -> None:
    made = roster(4)
    made.scale("worker", 1, victims=["worker-0"])
    assert draining(made) == {"worker-0", "worker-2", "worker-3"}


def test_more_victims_than_necessary_are_replaced() -> None:
    made = roster(3)
    made.scale("worker", 2, victims=["worker-0", "worker-1"])
    assert draining(made) == {"worker-0", "worker-1"}
    assert [node.name for node in made.wanted()] == ["worker-3"]


def test_victim_at_an_unchanged_count_is_replaced() -> None:
    made = roster(2)
    made.scale("worker", 2, victims=["worker-0"])
    assert [node.name for node in made.wanted()] == ["worker-2"]
    assert draining(made) == {"worker-0"}


def test_unknown_ended_and_foreign_victims_are_ignored() -> None:
    made = Roster(max_failures=2, targets={"ps": 1, "worker": 3})
    made.wanted()
    end(made, "worker-2")
    made.scale("worker", 2, victims=["worker-9", "worker-2", "ps-0"])
    assert draining(made) == set()
    assert made.targets["worker"] == 2


def test_victim_named_twice_is_drained_once() -> None:
    made = roster(3)
    made.scale("worker", 2, victims=["worker-0"])
    made.scale("worker", 2, victims=["worker-0"])
    assert draining(made) == {"worker-0"}
    assert made.wanted() == []
