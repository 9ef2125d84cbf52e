"""Edits of a job that has started: those that it follows, and those that are refused with the reason."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from elasticdl.jobs.training_job.edits import followed, unapplied_edits
from elasticdl.jobs.training_job.job_document import without_env_values_in
from elasticdl.jobs.training_job.job_spec import job_spec_of
from elasticdl.jobs.training_job.parsing import parse_training_job
from elasticdl.jobs.training_job.resource import TrainingJobSpec
from tests.jobs.training_job.documents import edl_document, job_document


def edited(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    result = copy.deepcopy(document)
    *sections, last = path.split(".")
    target = result
    for section in sections:
        target = target[section]
    target[last] = value
    return result


def spec_of(document: dict[str, Any]) -> TrainingJobSpec:
    return parse_training_job(document).spec


def paths(before: dict[str, Any], path: str, value: Any) -> list[str]:
    return [
        problem.path for problem in unapplied_edits(spec_of(before), spec_of(edited(before, path, value)))
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.suspend", True),
        ("spec.weight", 2.0),
        ("spec.ttlSecondsAfterFinished", 60),
        ("spec.trainer.replicas", 3),
        ("spec.trainer.min-instance", 3),
        ("spec.trainer.max-instance", 5),
    ],
)
def test_edit_that_a_running_job_follows(path: str, value: Any) -> None:
    before = edl_document()
    assert paths(before, path, value) == []
    after = spec_of(edited(before, path, value))
    assert followed(spec_of(before), after) == after


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.image", "registry/train:2"),
        ("spec.passes", 11),
        ("spec.port", 8000),
        ("spec.hostNetwork", True),
        ("spec.priorityClassName", "high"),
        ("spec.tolerations", [{"key": "spot"}]),
        ("spec.trainer.entrypoint", "python other.py"),
        ("spec.trainer.resources", {"requests": {"cpu": "2", "memory": "1Gi"}}),
        ("spec.trainer.min-instance", 1),
        ("spec.trainer.max-instance", 7),
        ("spec.pserver.resources", {"requests": {"cpu": "2", "memory": "1Gi"}}),
        ("spec.master.resources", {}),
    ],
)
def test_edit_that_a_running_job_cannot_follow_is_named(path: str, value: Any) -> None:
    before = edl_document()
    [found] = paths(before, path, value)
    assert path.startswith(found)
    assert followed(spec_of(before), spec_of(edited(before, path, value))) == spec_of(before)


@pytest.mark.parametrize(
    ("path", "value", "refused"),
    [
        ("spec.job.nodes.max_workers", 8, []),
        ("spec.job.nodes.max_workers", 12, ["spec.job.nodes.max_workers"]),
        ("spec.job.nodes.min_ps", 2, []),
        ("spec.job.nodes.max_ps", 4, ["spec.job.nodes.max_ps"]),
        ("spec.job.cluster.image_name", "registry/mnist:2", ["spec.job.cluster.image_name"]),
        (
            "spec.job.nodes.worker_resource_request",
            {"cpu": "2", "memory": "1Gi"},
            ["spec.job.nodes.worker_resource_request"],
        ),
    ],
)
def test_edits_of_a_whole_job_are_named_by_its_fields(path: str, value: Any, refused: list[str]) -> None:
    assert paths(job_document(), path, value) == refused


def test_range_beyond_the_first_one_is_cut_to_it() -> None:
    before = edl_document()
    after = spec_of(edited(before, "spec.trainer.max-instance", 60))
    assert followed(spec_of(before), after).trainer.max_instance == 6
    [problem] = unapplied_edits(spec_of(before), after)
    assert problem.sentence.startswith("60 is more than 6, with which the job was started")


def test_values_of_variables_are_not_compared_but_their_names_are() -> None:
    """A controller keeps what a job was started from without the values, where everyone may read it."""
    document = job_document()
    document["spec"]["job"].setdefault("nodes", {})["envs"] = {"PASSWORD": "hunter2"}
    started = {**document, "spec": without_env_values_in(document["spec"], job="example")}
    assert "hunter2" not in str(started)
    assert unapplied_edits(spec_of(started), spec_of(document)) == ()
    more = edited(document, "spec.job.nodes.envs", {"PASSWORD": "hunter2", "MORE": "x"})
    (problem,) = unapplied_edits(spec_of(started), spec_of(more))
    assert problem.path == "spec.job.nodes.secret_envs"
    running = job_spec_of(parse_training_job(started)).nodes
    assert (running.envs, running.secret_envs) == ({}, {"PASSWORD": "elasticdl-example-envs"})


@pytest.mark.parametrize(
    "envs", ["PASSWORD=hunter2,A=b", {"PASSWORD": "hunter2", "A": 1}, ["PASSWORD=hunter2", "A=b"]]
)
def test_every_way_to_write_variables_is_redacted(envs: object) -> None:
    spec = {"job": {"nodes": {"envs": envs, "secret_envs": "B=mine"}}}
    assert without_env_values_in(spec, job="j")["job"]["nodes"] == {
        "secret_envs": {"B": "mine", "PASSWORD": "elasticdl-j-envs", "A": "elasticdl-j-envs"}
    }
