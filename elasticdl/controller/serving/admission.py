"""The admission webhook: what the API server asks before it stores a TrainingJob, and the answer.

The checks are those of `jobs/training_job/parsing`, which the controller reports in the status as well, so that a
cluster without the webhook reports the same errors. Edits that a running job cannot follow are refused here with the
reason.

An update that leaves the spec as it is is always allowed: labels and finalizers of an invalid job can be changed, and
it can be deleted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from elasticdl.controller.serving.http_server import Response
from elasticdl.errors import UserError
from elasticdl.jobs.training_job.edits import unapplied_edits
from elasticdl.jobs.training_job.job_spec import job_spec_of
from elasticdl.jobs.training_job.parsing import (
    InvalidTrainingJob,
    parse_training_job,
    training_job_head,
    training_job_warnings,
)
from elasticdl.jobs.training_job.resource import TrainingJob
from elasticdl.jobs.training_job.status import TrainingJobPhase, TrainingJobStatus

PATH = "/validate"
_API_VERSION = "admission.k8s.io/v1"
# Phases of a job whose pods have been created.
_STARTED = (TrainingJobPhase.STARTING, TrainingJobPhase.RUNNING, TrainingJobPhase.STOPPING)


def review(body: bytes) -> Response:
    """Answers one AdmissionReview."""
    try:
        request = json.loads(body)["request"]
        uid, document = str(request["uid"]), request["object"]
        if not isinstance(document, Mapping):
            raise TypeError("no object")
    except (ValueError, KeyError, TypeError) as error:
        return Response.text(f"This is not an AdmissionReview: {error}.", HTTPStatus.BAD_REQUEST)
    old = request.get("oldObject")
    refusal = refusal_of(document, old if isinstance(old, Mapping) else None)
    answer: dict[str, Any] = {"uid": uid, "allowed": not refusal}
    if refusal:
        answer["status"] = {"code": 422, "reason": "Invalid", "message": refusal}
    elif warnings := training_job_warnings(document):
        answer["warnings"] = list(warnings)
    whole = {"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": answer}
    return Response(body=json.dumps(whole).encode(), content_type="application/json")


def refusal_of(document: Mapping[str, Any], old: Mapping[str, Any] | None) -> str:
    """Returns why a TrainingJob is refused, all problems at once; empty if it is not. `old`: what it replaces."""
    if old is not None and old.get("spec") == document.get("spec"):
        return ""
    try:
        job = parse_training_job(document)
        # Combinations that only the job as a whole knows.
        job_spec_of(job)
        return "\n".join(str(problem) for problem in _edits(job, old)) if old is not None else ""
    except UserError as error:
        return error.message


def _edits(job: TrainingJob, old: Mapping[str, Any]) -> tuple[object, ...]:
    if not _has_started(training_job_head(old)):
        return ()
    try:
        before = parse_training_job(old)
    except InvalidTrainingJob:
        # What it was started with is not in it any more.
        return ()
    return unapplied_edits(before.spec, job.spec)


def _has_started(job: TrainingJob) -> bool:
    try:
        status = TrainingJobStatus.from_document(job.status)
    except UserError:
        return False
    return bool(status.start_time) or status.phase in _STARTED or status.phase.is_final
