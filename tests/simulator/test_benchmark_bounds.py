"""The bounds that the benchmark of scenarios compares with."""

from __future__ import annotations

import pytest

from benchmarks.cluster_scenarios import packing_limit, two_job_optimum
from benchmarks.planning_time import measure, random_state
from elasticdl.simulator.scenarios import edl_machines


def test_packing_limit_of_one_machine_is_its_best_pattern() -> None:
    # 12 CPUs: three servers, or a server and a trainer, or two trainers.
    assert packing_limit([12_000], servers=0, trainers=9, masters=0) == 10_000
    assert packing_limit([12_000], servers=1, trainers=9, masters=0) == 9_000
    assert packing_limit([12_000], servers=3, trainers=9, masters=0) == 12_000


def test_packing_limit_of_edl_case_1_is_as_computed_by_hand() -> None:
    # 47 large machines hold 4 trainers and 2 servers each, 35 small ones 3 servers: 289 trainers in all.
    free = [machine.allocatable["cpu"] for machine in edl_machines()]
    assert (
        packing_limit(free, servers=200, trainers=1200, masters=20) == 289 * 5_000 + 200 * 4_000 + 20 * 1_000
    )


def test_optimum_of_two_jobs_is_as_computed_by_hand() -> None:
    # The first is done at 394; the second has done 350 of 760 by then and goes on twice as fast.
    assert two_job_optimum() == pytest.approx(599)


def test_random_clusters_are_planned() -> None:
    assert random_state(5, 10, seed=1) == random_state(5, 10, seed=1)
    full, incremental = measure(5, 10, seed=1)
    assert full > 0
    assert incremental > 0
