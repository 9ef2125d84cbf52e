"""Defaults that follow from other flags."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elasticdl.jobs.sections.training import ALLREDUCE, LOCAL, PARAMETER_SERVER
from elasticdl.jobs.spec import JobSpec

Build = Callable[..., JobSpec]


@pytest.mark.parametrize(
    ("flags", "strategy", "servers"),
    [
        ({}, LOCAL, 0),
        ({"num_workers": 1}, LOCAL, 0),
        ({"num_workers": 2}, PARAMETER_SERVER, 1),
        ({"num_ps": 2}, PARAMETER_SERVER, 2),
        ({"num_ps_pods": 3, "num_workers": 4}, PARAMETER_SERVER, 3),
        ({"distribution_strategy": PARAMETER_SERVER}, PARAMETER_SERVER, 1),
        ({"distribution_strategy": ALLREDUCE, "num_workers": 2}, ALLREDUCE, 0),
        ({"distribution_strategy": LOCAL}, LOCAL, 0),
    ],
)
def test_strategy_and_servers(job: Build, flags: dict[str, object], strategy: str, servers: int) -> None:
    spec = job(**flags)
    assert spec.training.distribution_strategy == strategy
    assert spec.nodes.num_ps == servers


def test_gradients_to_wait_for_make_it_synchronous(job: Build) -> None:
    assert job().training.asynchronous
    assert not job(grads_to_wait=2).training.asynchronous
    assert not job(use_async="false").training.asynchronous


def test_a_command_has_servers_only_if_it_asks_for_them() -> None:
    alone = JobSpec.build(job_command="python train.py", num_workers=3)
    assert alone.nodes.num_ps == 0
    assert alone.training.distribution_strategy == ALLREDUCE
    served = JobSpec.build(job_command="python train.py", num_workers=3, num_ps=1)
    assert served.training.distribution_strategy == PARAMETER_SERVER


def test_an_estimator_has_a_chief() -> None:
    assert JobSpec.build(job_command="python train.py", need_tf_config="true").nodes.num_chief == 1
    assert JobSpec.build(job_command="python train.py").nodes.num_chief == 0
    none = JobSpec.build(job_command="python train.py", need_tf_config="true", num_chief=0)
    assert none.nodes.num_chief == 0


def test_without_an_image_it_runs_here(job: Build) -> None:
    assert job().runs_here
    assert not job(image_name="elasticdl:1.0.0").runs_here


def test_the_program(job: Build) -> None:
    assert job().program == "definition"
    assert JobSpec.build(job_command="python train.py").program == "command"
