"""The exit code of a command, from the last status of its job."""

from __future__ import annotations

import pytest

from elasticdl.catalog.result import JobResult, exit_code
from elasticdl.errors import ExitCode
from elasticdl.jobs.audit import Audit
from elasticdl.jobs.status import Evaluation, JobStatus, RunState

EXACT = Audit(rows=(), skipped=(), exact=True, reason="")
INEXACT = Audit(rows=(), skipped=(), exact=False, reason="3 samples are missing")


@pytest.mark.parametrize(
    ("state", "audit", "code"),
    [
        (RunState.SUCCEEDED, EXACT, ExitCode.SUCCESS),
        (RunState.SUCCEEDED, None, ExitCode.SUCCESS),
        (RunState.SUCCEEDED, INEXACT, ExitCode.JOB_FAILED),
        (RunState.FAILED, EXACT, ExitCode.JOB_FAILED),
        (RunState.STOPPED, EXACT, ExitCode.INTERRUPTED),
        (RunState.INTERRUPTED, None, ExitCode.JOB_FAILED),
    ],
)
def test_exit_code_is_that_of_the_state_and_the_audit(
    state: RunState, audit: Audit | None, code: ExitCode
) -> None:
    assert exit_code(JobStatus(job="job", state=state, audit=audit)) is code


def test_result_has_the_last_evaluation_and_the_status_document() -> None:
    evaluations = (Evaluation(step=1, metrics={"auc": 0.5}), Evaluation(step=2, metrics={"auc": 0.9}))
    result = JobResult.of(JobStatus(job="job", state=RunState.SUCCEEDED, step=2, evaluations=evaluations))
    assert result.succeeded
    assert result.metrics == {"auc": 0.9}
    assert result.status["step"] == 2


def test_message_of_interrupted_job_is_its_trouble() -> None:
    status = JobStatus(job="job", state=RunState.INTERRUPTED, trouble="The master: its pod is gone.")
    assert JobResult.of(status).message == "The master: its pod is gone."
    assert JobResult.of(status).metrics == {}
