"""Reviews of TrainingJobs: what is refused, in which words, and what is stored with a warning."""

from __future__ import annotations

import copy
import json
from http import HTTPStatus
from typing import Any

import pytest

from elasticdl.controller.serving.admission import refusal_of, review
from elasticdl.jobs.training_job.status import TrainingJobPhase, TrainingJobStatus
from tests.controller.builders import training_job
from tests.jobs.training_job.documents import edl_document

Document = dict[str, Any]


def answer(document: Document, old: Document | None = None) -> Document:
    request = {"uid": "42", "operation": "UPDATE" if old else "CREATE", "object": document, "oldObject": old}
    response = review(json.dumps({"kind": "AdmissionReview", "request": request}).encode())
    assert response.status == HTTPStatus.OK
    whole = json.loads(response.body)
    assert (whole["apiVersion"], whole["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert whole["response"]["uid"] == "42"
    found: Document = whole["response"]
    return found


def test_valid_job_is_allowed() -> None:
    assert answer(training_job()) == {"uid": "42", "allowed": True}


def test_misspelled_field_is_refused_with_the_nearest_name() -> None:
    refused = answer(training_job(fault_tolernt=True))
    assert not refused["allowed"]
    message = refused["status"]["message"]
    assert message == "spec.fault_tolernt: there is no such field. Did you mean fault_tolerant?"


def test_all_problems_are_named_at_once() -> None:
    message = answer(training_job(low=3, high=2, weight=-1.0))["status"]["message"]
    assert "spec.trainer.min-instance: 3 is more than max-instance, 2." in message
    assert "spec.weight" in message


def test_valid_job_with_another_effect_than_expected_is_stored_with_a_warning() -> None:
    found = answer(edl_document(pserver={**edl_document()["spec"]["pserver"], "max-instance": 4}))
    assert found["allowed"]
    assert "are not scaled" in found["warnings"][0]


def started(document: Document) -> Document:
    status = TrainingJobStatus(phase=TrainingJobPhase.RUNNING, start_time="2023-11-14T22:13:20Z")
    return {**copy.deepcopy(document), "status": status.to_document()}


def test_edit_of_a_running_job_that_it_cannot_follow_is_refused_with_the_reason() -> None:
    old = started(training_job())
    edited = copy.deepcopy(old)
    edited["spec"]["image"] = "image:2"
    assert refusal_of(edited, old) == (
        "spec.image: cannot be changed once the job has started: its pods keep what they were created with. "
        "Create another job."
    )


def test_edit_of_a_job_that_waits_is_allowed() -> None:
    old = training_job()
    edited = copy.deepcopy(old)
    edited["spec"]["image"] = "image:2"
    assert refusal_of(edited, old) == ""


def test_running_job_can_be_suspended_and_pinned() -> None:
    old = started(training_job())
    edited = copy.deepcopy(old)
    edited["spec"]["suspend"] = True
    edited["spec"]["trainer"]["replicas"] = 2
    assert refusal_of(edited, old) == ""


def test_finalizer_of_an_invalid_job_can_be_removed() -> None:
    old = training_job(fault_tolernt=True)
    old["metadata"]["finalizers"] = ["example.org/hold"]
    changed = copy.deepcopy(old)
    changed["metadata"]["finalizers"] = []
    assert refusal_of(changed, old) == ""


@pytest.mark.parametrize(
    "body", [b"", b"[]", b'{"request": {}}', b'{"request": {"uid": "1", "object": null}}']
)
def test_anything_else_is_a_bad_request(body: bytes) -> None:
    assert review(body).status == HTTPStatus.BAD_REQUEST
