"""The spec that a TrainingJob was started with: kept as an annotation of its job record, compared with later edits.

The object itself has only its newest spec, and a running job cannot follow every edit (`jobs/training_job/edits`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.training_job.job_document import without_env_values_in
from elasticdl.jobs.training_job.parsing import parse_training_job
from elasticdl.jobs.training_job.resource import KIND, TrainingJobSpec
from elasticdl.platforms.kubernetes.client import Document

STARTED_FROM = "elasticdl-started-from"
# All annotations of an object may have 256 KiB.
_LONGEST = 200_000


def started_annotations(spec: Mapping[str, Any], *, job: str) -> dict[str, str]:
    """Returns nothing for a spec that is too long; then edits are not compared. Values of variables are left out:
    everyone who may read ConfigMaps reads this.
    """
    text = json.dumps(without_env_values_in(spec, job=job), separators=(",", ":"))
    return {STARTED_FROM: text} if len(text.encode()) <= _LONGEST else {}


def started_text(record: Document) -> str:
    return str((record["metadata"].get("annotations") or {}).get(STARTED_FROM) or "")


def read_started_spec(text: str, *, name: str, namespace: str, api_version: str) -> TrainingJobSpec | None:
    """Returns None if there is none, or if it was written by another version and cannot be read by this one."""
    if not text:
        return None
    metadata = {"name": name, "namespace": namespace}
    try:
        spec = json.loads(text)
        document = {"apiVersion": api_version, "kind": KIND, "metadata": metadata, "spec": spec}
        return parse_training_job(document).spec
    except (UserError, ValueError):
        return None
