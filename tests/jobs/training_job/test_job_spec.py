"""The JobSpec of a TrainingJob."""

from __future__ import annotations

import json

from elasticdl.jobs.sections.pod_fields import fields_of, parse_pod_fields
from elasticdl.jobs.spec import from_yaml, to_yaml
from elasticdl.jobs.training_job.job_document import job_document as document_of
from elasticdl.jobs.training_job.job_document import read_job_document
from elasticdl.jobs.training_job.job_spec import job_spec_of
from elasticdl.jobs.training_job.parsing import parse_training_job
from tests.jobs.training_job.documents import edl_document, job_document


def test_entrypoint_becomes_a_job_command_in_its_workspace() -> None:
    spec = job_spec_of(parse_training_job(edl_document()))
    assert spec.job_name == "example"
    assert spec.cluster.namespace == "team"
    assert spec.cluster.image_name == "registry/train:1"
    assert spec.model.job_command == "cd /work && python train_ft.py"
    assert (spec.nodes.num_workers, spec.nodes.min_workers, spec.nodes.max_workers) == (2, 2, 6)
    assert spec.nodes.num_ps == 2
    assert spec.framework == "paddle"
    assert spec.training.num_epochs == 10
    assert str(spec.nodes.worker_resource_request) == "cpu=500m,memory=600Mi"


def test_environment_has_the_variables_of_edl() -> None:
    envs = job_spec_of(parse_training_job(edl_document())).nodes.envs
    assert envs["PADDLE_JOB_NAME"] == "example"
    assert envs["PADDLE_INIT_NUM_PASSES"] == "10"
    assert envs["PADDLE_INIT_PORT"] == "7164"
    assert (envs["TRAINERS"], envs["PSERVERS"]) == ("2", "2")
    assert envs["ENTRY"] == "python train_ft.py"
    assert envs["PADDLE_INIT_USE_GPU"] == "0"


def test_job_spec_of_an_entrypoint_survives_the_job_record() -> None:
    spec = job_spec_of(parse_training_job(edl_document(nodeSelector={"disk": "ssd"}, hostNetwork=True)))
    assert from_yaml(to_yaml(spec)) == spec


def test_pod_fields_reach_the_pods() -> None:
    document = edl_document(
        volumes=[{"name": "data", "hostPath": {"path": "/data"}}],
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        nodeSelector={"disk": "ssd"},
        tolerations=[{"key": "spot", "operator": "Exists"}],
        imagePullSecrets=[{"name": "registry"}],
        hostNetwork=True,
        priorityClassName="high",
    )
    spec = job_spec_of(parse_training_job(document))
    fields = parse_pod_fields(spec.cluster.cluster_spec_json)
    worker, master = fields_of(fields, "worker"), fields_of(fields, "master")
    assert worker["nodeSelector"] == master["nodeSelector"] == {"disk": "ssd"}
    assert worker["hostNetwork"] is True
    assert "hostNetwork" not in master
    assert worker["volumeMounts"] == [{"name": "data", "mountPath": "/data"}]
    assert spec.nodes.pod_priority("worker") == spec.nodes.pod_priority("master") == "high"


def test_job_gets_name_namespace_and_pod_fields_of_the_object() -> None:
    document = job_document(nodeSelector={"disk": "ssd"}, priorityClassName="low")
    own = {"pod_spec": {"nodeSelector": {"zone": "a"}, "labels": {"team": "vision"}}}
    document["spec"]["job"]["cluster"]["cluster_spec_json"] = json.dumps(own)
    document["spec"]["job"]["nodes"]["worker_pod_priority"] = "high"
    spec = job_spec_of(parse_training_job(document))
    assert (spec.job_name, spec.cluster.namespace) == ("mnist", "team")
    fields = fields_of(parse_pod_fields(spec.cluster.cluster_spec_json), "worker")
    assert fields["nodeSelector"] == {"disk": "ssd", "zone": "a"}
    assert fields["labels"] == {"team": "vision"}
    assert (spec.nodes.worker_pod_priority, spec.nodes.ps_pod_priority) == ("high", "low")
    assert (spec.nodes.min_workers, spec.nodes.max_workers) == (2, 10)
    assert (spec.nodes.min_ps, spec.nodes.num_ps, spec.nodes.max_ps) == (1, 1, 3)


def test_document_of_a_job_reads_back_as_the_job() -> None:
    spec = job_spec_of(parse_training_job(job_document()))
    found, problems = read_job_document({**document_of(spec), "job_name": spec.job_name})
    assert problems == ()
    assert found == spec
