"""Published experiments: the peers' figures are reproduced, and ours are better."""

from __future__ import annotations

import pytest

from elasticdl.simulator.engine import Simulation
from elasticdl.simulator.policies import make_policy
from elasticdl.simulator.run_result import RunResult, jain_index
from elasticdl.simulator.scenarios import SCENARIOS, edl_machines


def run(scenario: str, policy: str) -> RunResult:
    return Simulation(SCENARIOS[scenario](), make_policy(policy)).run()


def test_edl_cluster_has_the_published_machines() -> None:
    cpus = [machine.allocatable["cpu"] for machine in edl_machines()]
    assert (cpus.count(12_000), cpus.count(28_000), sum(cpus)) == (86, 47, 2_348_000)


def test_edl_rule_waits_as_long_as_published() -> None:
    # Ten published runs, 24 to 85 s on average, 0 to 3 jobs without trainers.
    summary = run("edl-case1", "edl").summary()
    assert 24 <= summary.mean_first_instance <= 85
    assert summary.stuck <= 4


def test_fixed_sizes_wait_as_long_as_published() -> None:
    assert run("edl-case1", "static").summary().mean_first_instance == pytest.approx(308.5, rel=0.02)


def test_planner_starts_every_job_of_edl_case_1_at_once_and_shares_evenly() -> None:
    result = run("edl-case1", "elasticdl")
    summary = result.summary()
    assert summary.stuck == 0
    assert summary.mean_waiting < 20
    assert jain_index(job.size_at(result.end) for job in result.jobs) >= 0.95


def test_gang_of_two_jobs_takes_as_long_as_published() -> None:
    assert run("two-jobs", "fifo").summary().makespan == pytest.approx(795, rel=0.01)


def test_planner_runs_two_jobs_within_five_percent_of_the_optimum() -> None:
    assert run("two-jobs", "elasticdl").summary().makespan <= 1.05 * 599


def test_planner_keeps_the_cluster_beside_nginx_busy() -> None:
    result = run("nginx", "elasticdl")
    assert result.average("utilisation", start=60.0) > 0.9
    steps = [sample for sample in result.samples if sample.service_running < sample.service_target]
    # Missing replicas are there again within 15 s.
    for start in (160.0, 660.0, 1170.0):
        late = [sample.at for sample in steps if start + 15 < sample.at < start + 80]
        assert not late


def test_scenarios_are_the_same_every_time() -> None:
    assert SCENARIOS["edl-case2"]() == SCENARIOS["edl-case2"]()
