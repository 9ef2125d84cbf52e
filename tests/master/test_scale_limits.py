"""A running job is scaled within its range, all or nothing; victims that cannot be drained are reported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.master import Master
from elasticdl.master.scale_limits import CannotScale, scale
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus


@pytest.fixture
def make(tmp_path: Path, nowhere: Any) -> Iterator[Any]:
    made = []

    def master(**flags: Any) -> Master:
        given: dict[str, Any] = {"job_command": "x", "num_workers": 3, **flags}
        spec = JobSpec.build(job_name="job", **given)
        one = Master(spec=spec, folder=tmp_path, platform=nowhere, token="t", environment={})
        one.recover()
        one.state.roster.wanted()
        made.append(one)
        return one

    yield master
    for one in made:
        one._journal.close()
        one._events.close()


def draining(master: Master) -> list[str]:
    return [node.name for node in master.state.roster.nodes.values() if node.draining]


@pytest.mark.parametrize(
    ("count", "problem"),
    [
        (5, r"--num_workers=5 is more than --max_workers=4 of this job"),
        (1, r"--num_workers=1 is less than --min_workers=2 of this job"),
    ],
)
def test_count_out_of_range_is_refused_with_the_bound(make: Any, count: int, problem: str) -> None:
    master = make(min_workers=2, max_workers=4)
    with pytest.raises(CannotScale, match=problem):
        scale(master, {"worker": count})
    assert master.state.roster.targets["worker"] == 3


@pytest.mark.parametrize("count", [2, 4])
def test_bounds_are_within_the_range(make: Any, count: int) -> None:
    assert (
        scale(make(min_workers=2, max_workers=4), {"worker": count}).message == f"from 3 to {count} workers"
    )


def test_servers_out_of_range_leave_the_workers_as_they_are(make: Any) -> None:
    master = make(
        job_command="",
        model_zoo="zoo",
        model_def="m.m.custom_model",
        training_data="d",
        num_ps=2,
        max_ps=3,
    )
    with pytest.raises(CannotScale, match=r"--num_ps=4 is more than --max_ps=3"):
        scale(master, {"worker": 5, "ps": 4})
    assert master.state.roster.targets == {"ps": 2, "worker": 3}
    assert (
        scale(master, {"worker": 5, "ps": 3}).message
        == "from 3 to 5 workers and from 2 to 3 parameter servers"
    )


def test_count_that_is_met_changes_nothing(make: Any) -> None:
    assert scale(make(), {"worker": 3}).message == ""


def test_victims_are_drained_and_journaled(make: Any) -> None:
    master = make()
    result = scale(master, {"worker": 2}, victims=["worker-0"])
    assert result.message == "from 3 to 2 workers (draining worker-0)"
    assert draining(master) == ["worker-0"]
    assert scale(master, {"worker": 2}, victims=["worker-0"]).message == ""
    replayed = Master(
        spec=master.spec,
        folder=master.folder,
        platform=master._platform,
        token="t",
        environment={},
        journal=master._journal,
    )
    replayed.recover()
    assert draining(replayed) == ["worker-0"]
    replayed._events.close()


def test_victims_that_cannot_be_drained_are_reported_and_the_rest_is_done(make: Any) -> None:
    master = make(num_evaluator=1)
    master.state.roster.observe(
        NodeStatus(name="worker-2", role="worker", phase=NodePhase.FAILED, reason=EndReason.KILLED)
    )
    result = scale(master, {"worker": 2}, victims=["worker-1", "worker-2", "worker-11", "evaluator-0"])
    assert draining(master) == ["worker-1"]
    assert result.ignored_victims == {
        "worker-2": "it has ended (killed)",
        "worker-11": "there is no node of that name. Did you mean worker-1?",
        "evaluator-0": "evaluator nodes cannot be drained",
    }


def test_victims_of_a_program_with_fixed_addresses_are_reported(make: Any) -> None:
    master = make(need_tf_config=True)
    result = scale(master, {"worker": 2}, victims=["worker-0"])
    assert "newest leave first" in result.ignored_victims["worker-0"]
    assert draining(master) == ["worker-2"]


def test_parameter_server_as_victim_is_reported(make: Any) -> None:
    master = make(job_command="", model_zoo="zoo", model_def="m.m.custom_model", training_data="d", num_ps=2)
    result = scale(master, {"ps": 1}, victims=["ps-0"])
    assert "last places leave first" in result.ignored_victims["ps-0"]
    assert master.state.roster.targets["ps"] == 1
