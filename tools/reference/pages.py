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
from tools.reference.markdown import with_contents

# From so many words on, a page begins with links to its sections.
_LONG = 1200


def _written(write: Callable[[], str]) -> Callable[[], str]:
    def page() -> str:
        text = write()
        return with_contents(text) if len(text.split()) > _LONG else text

    return page


PAGES: dict[str, Callable[[], str]] = {
    "dashboard-endpoints.md": _written(dashboard_endpoints.page),
    "environment.md": _written(environment.page),
    "exit-codes.md": _written(exit_codes.page),
    "flags.md": flags.page,
    "job-spec.md": _written(job_spec.page),
    "metrics.md": _written(metrics.page),
    "python-api.md": _written(python_api.page),
    "training-job.md": _written(training_job.page),
}
