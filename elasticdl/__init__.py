"""Deep-learning jobs that grow, shrink and survive.

    import elasticdl

    elasticdl.run(
        model_zoo="model_zoo", model_def="digits.keras_cnn.custom_model", training_data="digits/train"
    )

takes the flags of `elasticdl train` as keyword arguments, and returns when the job has ended. `elasticdl.train` returns
a handle of the job at once. Names are imported when they are first used, so that `import elasticdl` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from elasticdl.version import VERSION

if TYPE_CHECKING:
    from elasticdl.catalog.result import JobResult
    from elasticdl.cli.submission.run import run
    from elasticdl.errors import UserError
    from elasticdl.handle import JobFailed, JobHandle, job, list_jobs, train
    from elasticdl.jobs.mode import Mode
    from elasticdl.jobs.spec import JobSpec
    from elasticdl.ps.checkpoint.opened_checkpoint import open_snapshot
    from elasticdl.ps.embedding.custom_optimizer import Optimizer
    from elasticdl.worker.scalars import scalar
    from elasticdl.worker.scoring import metrics

__version__ = VERSION

__all__ = [
    "JobFailed",
    "JobHandle",
    "JobResult",
    "JobSpec",
    "Mode",
    "Optimizer",
    "UserError",
    "__version__",
    "job",
    "jobs",
    "list_jobs",
    "metrics",
    "open_snapshot",
    "run",
    "scalar",
    "train",
]

_PLACES = {
    "JobFailed": "elasticdl.handle:JobFailed",
    "JobHandle": "elasticdl.handle:JobHandle",
    "JobResult": "elasticdl.catalog.result:JobResult",
    "JobSpec": "elasticdl.jobs.spec:JobSpec",
    "Mode": "elasticdl.jobs.mode:Mode",
    "Optimizer": "elasticdl.ps.embedding.custom_optimizer:Optimizer",
    "UserError": "elasticdl.errors:UserError",
    "job": "elasticdl.handle:job",
    # A package that can be called, like `list_jobs`.
    "jobs": "elasticdl.jobs:",
    "keras": "elasticdl.keras:",
    "list_jobs": "elasticdl.handle:list_jobs",
    "metrics": "elasticdl.worker.scoring.metrics:",
    "paddle": "elasticdl.paddle:",
    "open_snapshot": "elasticdl.ps.checkpoint.opened_checkpoint:open_snapshot",
    "run": "elasticdl.cli.submission.run:run",
    "scalar": "elasticdl.worker.scalars:scalar",
    "torch": "elasticdl.torch:",
    "train": "elasticdl.handle:train",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place, _, attribute = _PLACES[name].partition(":")
    module = import_module(place)
    value = getattr(module, attribute) if attribute else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES})
