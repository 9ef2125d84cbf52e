"""The job record: the document in which a job on a cluster is described and reports its status.

It is the `data` of a ConfigMap, a mapping of texts, each key with one writer:

    spec.yaml     the JobSpec; written once, when the job is submitted
    desired.json  what users and the controller want (`jobs/desired.py`)
    status.json   what the master reports (`jobs/status.py`)
    state.json    the master's snapshot of itself, packed by the master
    master.uid    uid of the pod that is the master: the fencing token of the master's writes

This module translates between the texts and typed objects. It knows no Kubernetes: versions of the object,
annotations and conflicts are the writers' concern.

Failure modes
    A key is parsed only when it is asked for: an unreadable status does not prevent stopping or deleting the
    job. Each accessor raises a `UserError` that names the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticdl.errors import UserError
from elasticdl.jobs.desired import Desired
from elasticdl.jobs.spec import JobSpec, from_yaml, to_yaml
from elasticdl.jobs.status import JobStatus

SPEC_KEY = "spec.yaml"
DESIRED_KEY = "desired.json"
STATUS_KEY = "status.json"
SNAPSHOT_KEY = "state.json"
MASTER_KEY = "master.uid"

# As `to_yaml` writes it.
_KIND = re.compile(r"^kind: (\w+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """The texts of a job record by their meaning."""

    data: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Mapping[str, str] | None) -> JobRecord:
        """`data`: of the ConfigMap; None if it has none."""
        return cls(data=dict(data or {}))

    @property
    def spec_text(self) -> str:
        return self.data.get(SPEC_KEY, "")

    def spec(self) -> JobSpec:
        """Raises `UserError`, also for the spec of a newer version with flags that are unknown here."""
        if SPEC_KEY not in self.data:
            raise UserError(f"The job record has no {SPEC_KEY}.")
        return from_yaml(self.spec_text)

    @property
    def kind(self) -> str:
        """The kind of the job, even if its spec cannot be read here. Empty if unknown."""
        found = _KIND.search(self.spec_text)
        return found[1] if found else ""

    @property
    def has_status(self) -> bool:
        """A master has started and reported."""
        return bool(self.data.get(STATUS_KEY))

    def status(self) -> JobStatus:
        """The master's last report; an empty status before the first. Raises `StatusError`."""
        text = self.data.get(STATUS_KEY)
        return JobStatus.from_text(text) if text else JobStatus()

    def desired(self) -> Desired:
        """Raises `DesiredError`."""
        return Desired.from_text(self.data.get(DESIRED_KEY, ""))

    def unobserved_desired(self) -> Desired:
        """The desired state if no master has acted on it yet; else an empty one of the same generation."""
        desired = self.desired()
        return desired.next_empty() if self.has_observed(desired.generation) else desired

    def has_observed(self, generation: int) -> bool:
        """The master has acted on the desired state of this generation, or on a later one."""
        return self.status().observed_generation >= generation

    @property
    def snapshot(self) -> str | None:
        return self.data.get(SNAPSHOT_KEY)

    @property
    def master_uid(self) -> str:
        return self.data.get(MASTER_KEY, "")


def new_record(spec: JobSpec) -> dict[str, str]:
    """Returns the data of the record of a job that is submitted."""
    return {SPEC_KEY: to_yaml(spec), DESIRED_KEY: Desired().to_text()}


def status_entry(status: JobStatus) -> dict[str, str]:
    return {STATUS_KEY: status.to_text(merge_epochs=True)}


def desired_entry(desired: Desired) -> dict[str, str]:
    return {DESIRED_KEY: desired.to_text()}


def snapshot_entry(text: str | None) -> dict[str, str | None]:
    """Returns the entry of a snapshot in the record; None removes it."""
    return {SNAPSHOT_KEY: text}


def master_entry(uid: str) -> dict[str, str]:
    return {MASTER_KEY: uid}
