"""The pages by name, with the function that writes each."""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.cli import reference as flags
from tools.reference import (
    dashboard_endpoints,
    environment,
    exit_codes,
    job_spec,
    metrics,
    python_api,
    training_job,
)

PAGES: dict[str, Callable[[], str]] = {
    "dashboard-endpoints.md": dashboard_endpoints.page,
    "environment.md": environment.page,
    "exit-codes.md": exit_codes.page,
    "flags.md": flags.page,
    "job-spec.md": job_spec.page,
    "metrics.md": metrics.page,
    "python-api.md": python_api.page,
    "training-job.md": training_job.page,
}
