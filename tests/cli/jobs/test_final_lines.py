"""What the end of a job says, and in which order."""

from __future__ import annotations

from typing import Any

from elasticdl.cli.output.display import final_lines
from elasticdl.jobs.status import JobStatus
from tests.cli.jobs.test_long_records import AUDIT, evaluation, status


def lines_of(**more: Any) -> list[str]:
    return final_lines(JobStatus.from_json(status(audit=AUDIT, **more)), "here")


def test_error_of_a_failed_job_is_last() -> None:
    lines = lines_of(
        state="failed", message="ValueError: no", traceback='  File "zoo/a.py", line 3, in loss\n'
    )
    assert lines[-2:] == ['  File "zoo/a.py", line 3, in loss', "error: ValueError: no"]
    assert "Job long has failed. Logs: here" in lines


def test_evaluation_without_training_has_no_step() -> None:
    assert "Evaluation: auc 0.5" in " ".join(lines_of(kind="evaluate", evaluations=[evaluation(0)]))
    assert "(step 0)" not in " ".join(lines_of(kind="evaluate", evaluations=[evaluation(0)]))
    assert "(step 7)" in " ".join(lines_of(evaluations=[evaluation(7)]))
