"""The actions of the controller on the cluster, as data. `effects` executes them in the order of the tuple, and stops a
job's actions at the first failure; the next reconciliation starts from the state observed then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from elasticdl.jobs.desired import Desired
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.training_job.resource import TrainingJob
from elasticdl.jobs.training_job.status import TrainingJobStatus
from elasticdl.platforms.kubernetes.client import Document


@dataclass(frozen=True, kw_only=True)
class StartJob:
    """Create the job record, owned by the TrainingJob, and everything that the record owns, the master's pod last.
    `started_from`: the spec as it is in the document.
    """

    job: TrainingJob
    spec: JobSpec
    started_from: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class StartMaster:
    """Create what is missing of a job whose record is there: it recovers from its journal or from the record."""

    job: TrainingJob
    record: Document
    spec: JobSpec


@dataclass(frozen=True, kw_only=True)
class DeletePod:
    """`is_forced`: its machine does not answer, so that nothing would confirm its end."""

    job: TrainingJob
    name: str
    uid: str
    reason: str
    is_forced: bool = False


@dataclass(frozen=True, kw_only=True)
class WriteDesired:
    """Writes the desired state, only if the record still has `version`."""

    job: TrainingJob
    record: Document
    desired: Desired


@dataclass(frozen=True, kw_only=True)
class WriteStatus:
    job: TrainingJob
    status: TrainingJobStatus


@dataclass(frozen=True, kw_only=True)
class EmitEvent:
    job: TrainingJob
    reason: str
    message: str
    is_warning: bool = False


@dataclass(frozen=True, kw_only=True)
class DeleteTrainingJob:
    """Deletes the TrainingJob after its time to live, and with it everything that it owns."""

    job: TrainingJob


Action = StartJob | StartMaster | DeletePod | WriteDesired | WriteStatus | EmitEvent | DeleteTrainingJob
