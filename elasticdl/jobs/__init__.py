"""The description of a job: JobSpec, JobStatus, the job record, the job folder; their parsing, defaults and validation.

The package can be called: `elasticdl.jobs()` lists jobs, as `elasticdl.list_jobs` does. The name is the package's since
importing any of its modules puts it into `elasticdl` (docs/decisions/0039-callable-package.md).
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    def __call__(self, **options: Any) -> Any:
        # By name: this package is below what lists jobs.
        return import_module("elasticdl").list_jobs(**options)


sys.modules[__name__].__class__ = _CallablePackage
