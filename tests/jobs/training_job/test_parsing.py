"""Documents of TrainingJobs: what is accepted, and what is said about the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticdl.jobs.training_job.parsing import (
    InvalidTrainingJob,
    parse_training_job,
    training_job_head,
    training_job_warnings,
)
from tests.jobs.training_job.documents import edl_document, job_document


def problems_of(document: dict[str, Any]) -> dict[str, str]:
    """Sentences by path."""
    with pytest.raises(InvalidTrainingJob) as caught:
        parse_training_job(document)
    return {problem.path: str(problem) for problem in caught.value.problems}


def with_trainer(**fields: Any) -> dict[str, Any]:
    trainer = {
        **edl_document()["spec"]["trainer"],
        **{name.replace("_", "-"): value for name, value in fields.items()},
    }
    return edl_document(trainer={name: value for name, value in trainer.items() if value is not None})


def test_volume_name_that_is_no_text_is_named() -> None:
    problems = problems_of(edl_document(volumes=[{"name": {"a": "b"}}, {"name": ["x"]}]))
    assert problems["spec.volumes[0].name"] == "spec.volumes[0].name: is missing."
    assert "spec.volumes[1].name" in problems


def test_edl_style_document_is_read_with_sizes_and_resources() -> None:
    job = parse_training_job(edl_document())
    assert (job.key, job.uid, job.generation) == ("team/example", "u-1", 3)
    assert (job.spec.trainer.min_instance, job.spec.trainer.max_instance) == (2, 6)
    assert job.spec.trainer.resources.requests.to_units() == {"cpu": 500, "memory": 600 << 20}
    assert job.spec.trainer.is_elastic
    assert job.spec.pserver.min_instance == 2


def test_job_document_fills_in_sizes_and_resources_of_roles() -> None:
    job = parse_training_job(job_document())
    assert (job.spec.trainer.min_instance, job.spec.trainer.max_instance) == (2, 10)
    assert (job.spec.pserver.min_instance, job.spec.pserver.max_instance) == (1, 3)
    assert job.spec.trainer.resources.requests.to_units() == {"cpu": 1000, "memory": 1 << 30}
    assert job.spec.fault_tolerant


def test_job_without_bounds_has_a_fixed_size() -> None:
    document = job_document()
    document["spec"]["job"]["nodes"] = {"num_workers": 3, "num_ps": 2}
    job = parse_training_job(document)
    assert (job.spec.trainer.min_instance, job.spec.trainer.max_instance) == (3, 3)
    assert (job.spec.pserver.min_instance, job.spec.pserver.max_instance) == (2, 2)


def test_edl_api_version_is_accepted_with_its_spellings() -> None:
    document = edl_document(
        VolumeMounts=[{"name": "data", "mountPath": "/data"}],
        volumes=[{"name": "data", "hostPath": {"path": "/data"}}],
        host_network=True,
        master={"etcd-endpoint": "", "resources": {}},
    )
    document["apiVersion"] = "paddlepaddle.org/v1"
    document["spec"]["trainer"]["resources"] = {
        "limits": {"alpha.kubernetes.io/nvidia-gpu": 1, "cpu": "500m", "memory": "600Mi"}
    }
    job = parse_training_job(document)
    assert job.spec.host_network
    assert job.spec.volume_mounts[0]["mountPath"] == "/data"
    # Requests that are not said are the limits.
    assert job.spec.trainer.resources.requests.to_units() == {
        "cpu": 500,
        "memory": 600 << 20,
        "nvidia.com/gpu": 1,
    }


def test_edl_spelling_in_our_group_is_an_unknown_field() -> None:
    assert problems_of(edl_document(host_network=True)) == {
        "spec.host_network": "spec.host_network: there is no such field. Did you mean hostNetwork?"
    }


@pytest.mark.parametrize(
    ("document", "path", "words"),
    [
        (edl_document(trainr={}), "spec.trainr", "Did you mean trainer?"),
        (with_trainer(max_instnce=3), "spec.trainer.max-instnce", "Did you mean max-instance?"),
        (with_trainer(min_instance=7), "spec.trainer.min-instance", "7 is more than max-instance, 6"),
        (edl_document(fault_tolerant=False), "spec.fault_tolerant", "must be true"),
        (with_trainer(resources=None), "spec.trainer.resources.requests", "cpu and memory are missing"),
        (
            with_trainer(resources={"requests": {"cpu": "5x", "memory": "1Gi"}}),
            "spec.trainer.resources.requests.cpu",
            "'5x' is not a quantity",
        ),
        (
            with_trainer(resources={"requests": {"cpu": 2, "memory": "1Gi"}, "limits": {"cpu": 1}}),
            "spec.trainer.resources.requests",
            "cpu=2 is more than its limit 1",
        ),
        (with_trainer(min_instance=-1), "spec.trainer.min-instance", "-1 is less than 0"),
        (with_trainer(min_instance="two"), "spec.trainer.min-instance", "'two' is not a whole number"),
        (with_trainer(min_instance=True), "spec.trainer.min-instance", "True is not a whole number"),
        (with_trainer(min_instance=0), "spec.trainer.min-instance", "use 1 or more"),
        (with_trainer(entrypoint=" "), "spec.trainer.entrypoint", "is missing"),
        (with_trainer(workspace="here"), "spec.trainer.workspace", "not an absolute path"),
        (edl_document(image=None), "spec.image", "is missing"),
        (edl_document(image="no such image"), "spec.image", "registry/team/name:tag"),
        (edl_document(port=70000), "spec.port", "more than 65535"),
        (edl_document(port=65535), "spec.port", "go up to 65536"),
        (edl_document(weight=0), "spec.weight", "not a finite number above 0"),
        (edl_document(suspend="yes"), "spec.suspend", "'yes' is not true or false"),
        (edl_document(tolerations=["x"]), "spec.tolerations", "not a list of objects"),
        (edl_document(nodeSelector={"a": 1}), "spec.nodeSelector", "not a mapping of texts"),
        (edl_document(volumes=[{"emptyDir": {}}]), "spec.volumes[0].name", "is missing"),
        (
            edl_document(volumes=[{"name": "data"}], volumeMounts=[{"name": "date", "mountPath": "/d"}]),
            "spec.volumeMounts[0].name",
            "Did you mean data?",
        ),
        (edl_document(pserver={"max-instance": 2}), "spec.pserver.min-instance", "at least 1"),
        (edl_document(priorityClassName="Very High"), "spec.priorityClassName", "small letters"),
        (edl_document(ttlSecondsAfterFinished=-5), "spec.ttlSecondsAfterFinished", "less than 0"),
        (job_document(image="a:1"), "spec.image", "spec.job says what to run"),
        (job_document(trainer={"max-instance": 3}), "spec.trainer.max-instance", "spec.job describes"),
    ],
)
def test_wrong_field_is_named_with_its_path(document: dict[str, Any], path: str, words: str) -> None:
    assert words in problems_of(document)[path]


def test_all_problems_are_reported_at_once() -> None:
    document = edl_document(port=-1, trainr={}, fault_tolerant=False)
    document["metadata"]["name"] = "x" * 60
    assert set(problems_of(document)) == {
        "metadata.name",
        "spec.port",
        "spec.trainr",
        "spec.fault_tolerant",
    }


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"nodes": {"num_wrkers": 3}}, "spec.job.nodes.num_wrkers", "Did you mean num_workers?"),
        ({"data": {"shuffle_seed": "a"}}, "spec.job.data.shuffle_seed", "'a' is not a whole number"),
        ({"kind": "evaluate"}, "spec.job", "--checkpoint_dir_for_init is missing"),
        ({"cluster": {}}, "spec.job.cluster.image_name", "is missing"),
        ({"job_name": "other"}, "spec.job.job_name", "is not the name of this object"),
        (
            {"nodes": {"min_workers": 2, "max_workers": 3, "num_ps": 1}},
            "spec.job.nodes.worker_resource_request",
            "cpu and memory are missing",
        ),
    ],
)
def test_problem_of_a_job_has_its_path(change: dict[str, Any], path: str, words: str) -> None:
    document = job_document()
    document["spec"]["job"].update(change)
    assert words in problems_of(document)[path]


def test_field_that_the_server_dropped_is_named_from_the_applied_document() -> None:
    document = edl_document()
    applied = edl_document(trainr={})
    document["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps(applied)
    }
    assert problems_of(document) == {
        "spec.trainr": "spec.trainr: there is no such field. Did you mean trainer?"
    }


def test_pin_outside_of_the_range_is_moved_into_it() -> None:
    assert parse_training_job(with_trainer(replicas=9)).spec.trainer.pinned == 6
    assert parse_training_job(with_trainer(replicas=1)).spec.trainer.pinned == 2
    assert parse_training_job(with_trainer(replicas=4)).spec.trainer.pinned == 4
    assert parse_training_job(with_trainer(replicas=0)).spec.trainer.pinned is None
    assert "the job gets 6" in " ".join(training_job_warnings(with_trainer(replicas=9)))


def test_servers_of_a_program_stay_at_their_minimum_with_a_warning() -> None:
    servers = {**edl_document()["spec"]["pserver"], "max-instance": 4}
    document = edl_document(pserver=servers)
    assert not parse_training_job(document).spec.pserver.is_elastic
    assert "there will be 2" in " ".join(training_job_warnings(document))


def test_head_of_an_invalid_document_is_readable() -> None:
    head = training_job_head(
        {
            "metadata": {
                "name": "x",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-01T00:01:00Z",
                "labels": {"kueue.x-k8s.io/queue-name": "team"},
            },
            "spec": 1,
        }
    )
    assert (head.key, head.queue_name, head.is_deleted) == ("default/x", "team", True)
    assert head.deleted_seconds is not None
    assert head.deleted_seconds - head.created_seconds == 60


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_number_that_is_not_finite_is_named(number: float) -> None:
    """YAML has them, as `.inf` and `.nan`."""
    problems = problems_of(edl_document(port=number, weight=number))
    assert "is not" in problems["spec.port"]
    assert "spec.weight" in problems
