"""A workload of measured programs, replayed by the published rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.simulator.engine import Simulation
from elasticdl.simulator.inputs import read_pollux, read_workloads
from elasticdl.simulator.policies import make_policy
from elasticdl.simulator.work import goodput
from tests.simulator.builders import of
from tests.simulator.small_traces import write_traces


@pytest.fixture
def workload_file(tmp_path: Path) -> Path:
    return write_traces(tmp_path / "traces") / "workloads" / "small.csv"


def test_completion_of_a_job_is_as_computed_by_hand(tmp_path: Path) -> None:
    folder = write_traces(tmp_path / "traces", jobs="a,10,fast,2,32\n")
    workload = read_pollux(folder / "workloads" / "small.csv")
    result = Simulation(workload, make_policy("tiresias")).run()
    program = read_workloads(str(folder))[0].jobs[0].work.program  # type: ignore[attr-defined]
    training = sum(round(100 / goodput(program, (2,), 16, 0, epoch)) for epoch in range(3))
    # Submitted at 10, placed at 60, stopped for 30 s, then three epochs.
    assert of(result, "a").completed_at == pytest.approx(60 + 30 + training, abs=2)


@pytest.mark.parametrize("policy", ["elasticdl", "edl", "fifo", "static", "tiresias"])
def test_every_policy_completes_the_workload(workload_file: Path, policy: str) -> None:
    result = Simulation(read_pollux(workload_file), make_policy(policy)).run()
    summary = result.summary()
    assert summary.completed == 3
    assert all((job.completion_seconds or 0) >= 30 for job in result.jobs)
    assert all((job.started_at or 0) % 60 == 0 for job in result.jobs)


def test_planner_at_most_doubles_what_a_job_has_run_with(workload_file: Path) -> None:
    result = Simulation(read_pollux(workload_file), make_policy("elasticdl")).run()
    for job in result.jobs:
        largest = 0
        for _, size in job.sizes:
            assert size <= max(2 * largest, 1)
            largest = max(largest, size)


def test_rules_of_the_published_comparison_are_the_defaults(workload_file: Path) -> None:
    workload = read_pollux(workload_file)
    assert (workload.rules.interval, workload.rules.resize_cost, workload.rules.reacts) == (60, 30, False)
    assert [machine.allocatable["nvidia.com/gpu"] for machine in workload.machines] == [4] * 16


def test_cheaper_resizes_finish_earlier(workload_file: Path) -> None:
    workload = read_pollux(workload_file)
    dear = Simulation(workload, make_policy("tiresias")).run().summary()
    cheap = Simulation(workload.with_rules(resize_cost=1.0), make_policy("tiresias")).run().summary()
    assert (dear.mean_completion or 0) - (cheap.mean_completion or 0) == pytest.approx(29, abs=1)
