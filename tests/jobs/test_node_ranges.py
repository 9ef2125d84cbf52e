"""The counts of nodes that a job may be scaled to: defaults that follow from them, and ranges that cannot be."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec, from_yaml, to_yaml

DEFINITION = {"model_zoo": "zoo", "model_def": "m.m.custom_model", "training_data": "data"}
COMMAND = {"job_command": "python train.py"}


def test_job_without_bounds_may_have_any_count() -> None:
    nodes = JobSpec.build(**DEFINITION).nodes
    assert (nodes.num_workers, nodes.range_of("worker"), nodes.range_of("ps")) == (1, (0, None), (0, None))


def test_node_ranges_are_kept_in_yaml() -> None:
    spec = JobSpec.build(**DEFINITION, num_workers=3, min_workers=2, max_workers=8, num_ps=2, max_ps=4)
    assert from_yaml(to_yaml(spec)) == spec
    assert spec.nodes.range_of("worker") == (2, 8)
    assert spec.nodes.range_of("ps") == (0, 4)


def test_counts_that_are_not_given_start_at_the_minimum() -> None:
    spec = JobSpec.build(**DEFINITION, min_workers=4, min_ps=2)
    assert (spec.nodes.num_workers, spec.nodes.num_ps) == (4, 2)
    assert spec.training.distribution_strategy == "ParameterServerStrategy"


def test_job_that_may_grow_gets_a_strategy_for_several_workers() -> None:
    spec = JobSpec.build(**DEFINITION, max_workers=4)
    assert spec.training.distribution_strategy == "ParameterServerStrategy"
    assert spec.nodes.num_ps == 1
    assert JobSpec.build(**COMMAND, max_workers=4).training.distribution_strategy == "AllreduceStrategy"


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"min_workers": 5, "max_workers": 3}, "--min_workers=5 is more than --max_workers=3"),
        ({"num_workers": 2, "min_workers": 3}, "--num_workers=2 is less than --min_workers=3"),
        ({"num_workers": 5, "max_workers": 3}, "--num_workers=5 is more than --max_workers=3"),
        ({"num_ps": 1, "min_ps": 2}, "--num_ps=1 is less than --min_ps=2"),
        ({"num_ps": 3, "max_ps": 2}, "--num_ps=3 is more than --max_ps=2"),
        ({"num_ps": 1, "min_ps": 2, "max_ps": 1}, "--min_ps=2 is more than --max_ps=1"),
        ({"max_ps": 2}, "--max_ps has a meaning only for a job with parameter servers"),
        (
            {"distribution_strategy": "Local", "max_workers": 2},
            "--distribution_strategy=Local is for one worker, and --max_workers is 2",
        ),
        ({"min_workers": -1}, "-1 is less than 0"),
        ({"max_worker": 3}, "max_worker: there is no flag of that name. Did you mean max_workers"),
    ],
)
def test_impossible_range_is_refused_with_both_flags(flags: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        JobSpec.build(**{**DEFINITION, **flags})


def test_servers_of_a_job_command_have_no_range() -> None:
    with pytest.raises(UserError, match="parameter servers of a --job_command cannot be scaled"):
        JobSpec.build(**COMMAND, num_ps=2, max_ps=3)
    assert JobSpec.build(**COMMAND, num_ps=2, min_ps=2, max_ps=2).nodes.num_ps == 2
