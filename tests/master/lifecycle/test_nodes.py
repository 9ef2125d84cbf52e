"""Who is replaced, under which number, how often, and when the job gives up."""

from __future__ import annotations

import pytest

from elasticdl.master.lifecycle.roster import Roster
from elasticdl.platforms.platform import EXIT_DEFINITION_ERROR, EndReason, NodePhase, NodeStatus


def roster(workers: int = 2, servers: int = 1, max_failures: int = 2) -> Roster:
    made = Roster(max_failures=max_failures, targets={"ps": servers, "worker": workers})
    for node in made.wanted():
        assert made.join(node.name, f"i-{node.name}", "here")
    return made


def ended(name: str, reason: EndReason, exit_code: int | None = None) -> NodeStatus:
    phase = NodePhase.SUCCEEDED if exit_code == 0 else NodePhase.FAILED
    return NodeStatus(name=name, role=name.split("-")[0], phase=phase, reason=reason, exit_code=exit_code)


def names(made: Roster) -> list[str]:
    return [node.name for node in made.wanted()]


def test_a_killed_worker_is_replaced_under_the_next_number_without_limit() -> None:
    made = roster()
    for number in range(2, 50):
        _, failure = made.observe(ended(f"worker-{number - 1}", EndReason.KILLED))
        assert failure is None
        assert names(made) == [f"worker-{number}"]
        made.join(f"worker-{number}", "i", "")


def test_the_list_of_ended_nodes_does_not_grow() -> None:
    made = roster()
    for number in range(2, 200):
        made.observe(ended(f"worker-{number - 1}", EndReason.KILLED))
        made.wanted()
        made.join(f"worker-{number}", "i", "")
    assert len(made.nodes) < 10


def test_own_errors_are_counted_along_the_line_of_replacements() -> None:
    made = roster(max_failures=2)
    assert made.observe(ended("worker-1", EndReason.ERROR, 1))[1] is None
    assert names(made) == ["worker-2"]
    assert made.observe(ended("worker-2", EndReason.OUT_OF_MEMORY, 17))[1] is None
    assert names(made) == ["worker-3"]
    failure = made.observe(ended("worker-3", EndReason.ERROR, 1))[1]
    assert failure is not None
    assert "--relaunch_on_worker_failure=2" in failure.message


def test_second_out_of_memory_in_a_row_fails_the_job() -> None:
    made = roster(max_failures=5)
    assert made.observe(ended("worker-1", EndReason.OUT_OF_MEMORY, 17))[1] is None
    assert names(made) == ["worker-2"]
    failure = made.observe(ended("worker-2", EndReason.OUT_OF_MEMORY, 17))[1]
    assert failure is not None
    assert "worker-2 ran out of memory, as a worker before it did" in failure.message


@pytest.mark.parametrize(
    ("reason", "code"), [(EndReason.CANNOT_START, None), (EndReason.ERROR, EXIT_DEFINITION_ERROR)]
)
def test_permanent_error_fails_without_retry(reason: EndReason, code: int | None) -> None:
    assert roster().observe(ended("worker-0", reason, code))[1] is not None


def test_a_server_keeps_its_slot() -> None:
    made = roster(servers=3)
    made.observe(ended("ps-1", EndReason.KILLED))
    (replacement,) = made.wanted()
    assert (replacement.name, replacement.slot) == ("ps-3", 1)


def test_scaling_down_drains_the_newest_without_replacement() -> None:
    made = roster(workers=4)
    made.scale("worker", 2)
    assert {n.name for n in made.nodes.values() if n.draining} == {"worker-2", "worker-3"}
    assert made.observe(ended("worker-3", EndReason.COMPLETED, 0))[1] is None
    assert names(made) == []
    made.scale("worker", 3)
    assert names(made) == ["worker-4"]


def test_a_name_of_another_process_is_refused() -> None:
    made = roster()
    assert made.join("worker-0", "i-worker-0", "here")
    assert not made.join("worker-0", "another process", "here")
    assert not made.join("worker-9", "i", "here")
    made.observe(ended("worker-0", EndReason.KILLED))
    assert not made.join("worker-0", "i-worker-0", "here")


def test_the_oldest_at_work_leads() -> None:
    made = roster(workers=3)
    leader = made.leader()
    assert leader is not None
    assert leader.name == "worker-0"
    made.observe(ended("worker-0", EndReason.KILLED))
    made.wanted()
    leader = made.leader()
    assert leader is not None
    assert leader.name == "worker-1"


def test_no_node_is_replaced_when_the_job_is_over() -> None:
    made = roster()
    made.closing = True
    assert made.observe(ended("worker-0", EndReason.ERROR, 1))[1] is None
    assert names(made) == []


def test_comes_back_from_a_snapshot() -> None:
    made = roster()
    made.observe(ended("worker-1", EndReason.ERROR, 1))
    made.wanted()
    again = Roster(max_failures=2, targets={})
    again.restore(made.snapshot())
    assert again == made
