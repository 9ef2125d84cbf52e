"""Everything that the controller knows of one TrainingJob at one moment: the input of `reconcile`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from elasticdl.catalog.kubernetes.observed_job import ObservedJob
from elasticdl.controller.cluster_view import CachedRecord, ManagedJob
from elasticdl.controller.demands import size_range
from elasticdl.errors import UserError
from elasticdl.jobs.desired import Desired, DesiredError
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import StatusError
from elasticdl.jobs.training_job.parsing import FieldProblem
from elasticdl.jobs.training_job.status import TrainingJobPhase, TrainingJobStatus
from elasticdl.platforms.kubernetes.client import Document
from elasticdl.platforms.kubernetes.naming import ROLE_LABEL
from elasticdl.platforms.kubernetes.pods.status import leaving, node_status
from elasticdl.platforms.platform import MASTER_ROLE, EndReason, NodePhase
from elasticdl.scheduling.decisions import Decision

_WORKER = "worker"
# Why nodes have ended that would end again.
_OWN_FAULTS = (EndReason.ERROR.value, EndReason.OUT_OF_MEMORY.value, EndReason.CANNOT_START.value)
# Phases of pods that have ended.
ENDED_PHASES = ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True)
class JobView:
    """`spec`: None if it cannot be built; `problem` then says why. `decision`: None if the planner was not asked.
    `is_name_taken`: the name is in use by something that this TrainingJob does not own. `lost_pods`: names of pods
    whose machine is gone or not ready. `failure`: an action that was refused a moment ago; nothing is attempted now.
    `edits`: of the spec, which the running job cannot follow; `managed` is without them. `master_trouble`: why its
    machine does not start the master, as far as events say.
    """

    managed: ManagedJob
    spec: JobSpec | None = None
    problem: str = ""
    record: CachedRecord | None = None
    pods: Mapping[str, Document] = field(default_factory=dict)
    lost_pods: frozenset[str] = frozenset()
    decision: Decision | None = None
    is_name_taken: bool = False
    failure: str = ""
    edits: tuple[FieldProblem, ...] = ()
    master_trouble: str = ""

    @cached_property
    def master(self) -> Document | None:
        return next((pod for pod in self.pods.values() if _role(pod) == MASTER_ROLE), None)

    @property
    def observed(self) -> ObservedJob | None:
        if self.record is None:
            return None
        return ObservedJob(
            name=self.managed.job.name,
            document=self.record.document,
            master=self.master,
            parsed=self.record.status,
        )

    @cached_property
    def desired(self) -> Desired:
        """Returns the desired state of the record; empty if there is no record, or if it cannot be read."""
        if self.record is None:
            return Desired()
        try:
            return self.record.record.desired()
        except DesiredError:
            return Desired(generation=self.record.status.observed_generation)

    @cached_property
    def workers_desired(self) -> int:
        """The size that the job has been asked to have: by its desired state, else by its master, else by its spec."""
        if self.record is None:
            return 0
        count = self.desired.nodes.get(_WORKER) or self.record.status.desired_nodes.get(_WORKER)
        if count:
            return count
        # No master has reported yet.
        try:
            return self.record.record.spec().nodes.num_workers
        except UserError:
            return 0

    @property
    def workers_placed(self) -> int:
        """Workers that have a machine and have not ended."""
        return sum(
            _role(pod) == _WORKER
            and bool((pod.get("spec") or {}).get("nodeName"))
            and (pod.get("status") or {}).get("phase") not in ENDED_PHASES
            for pod in self.pods.values()
        )

    @property
    def planned_size(self) -> int:
        """The number of workers by the plan, within the range of now; 0 if the job is to wait."""
        if self.decision is None or self.decision.size < 1:
            return 0
        low, high = size_range(self.managed)
        return min(max(self.decision.size, low), high)

    @cached_property
    def written_status(self) -> TrainingJobStatus:
        return written_status(self.managed)

    @cached_property
    def trouble(self) -> str:
        """Why a pod of the job does not run. Empty: none is known."""
        if self.failure:
            return self.failure
        observed = self.observed
        if self.record is not None and self.record.trouble:
            return self.record.trouble
        # A master that is gone is created again: no trouble of the job.
        if observed is not None and self.master is not None and observed.trouble:
            return f"master: {observed.trouble}"
        if self.master_trouble:
            return f"master: {self.master_trouble}"
        for name, pod in sorted(self.pods.items()):
            status = node_status(pod)
            if status.phase is NodePhase.PENDING and status.message and not leaving(pod):
                return f"{name}: {status.message}"
        return self._reported_trouble()

    def _reported_trouble(self) -> str:
        """Returns the trouble with its nodes that the master reports: a node that its machine does not start, or
        failures while no worker runs. Of a worker that fails repeatedly, masters report the last failure.
        """
        if self.record is None or self.record.status.state.is_final:
            return ""
        nodes = self.record.status.nodes
        for node in nodes:
            if node.phase == NodePhase.PENDING.value and node.message:
                return f"{node.name}: {node.message}"
        failed = [node for node in nodes if node.reason in _OWN_FAULTS]
        if failed and not self.record.status.ready_nodes(_WORKER):
            return f"{failed[-1].name}: it has ended ({failed[-1].message})"
        return ""


def written_status(managed: ManagedJob) -> TrainingJobStatus:
    """The status that a TrainingJob has now; an empty one if it cannot be read."""
    try:
        return TrainingJobStatus.from_document(managed.job.status)
    except StatusError:
        return TrainingJobStatus()


def written_phase(managed: ManagedJob) -> TrainingJobPhase:
    """The phase alone, without reading the rest."""
    try:
        return TrainingJobPhase(managed.job.status.get("phase") or TrainingJobPhase.PENDING)
    except ValueError:
        return TrainingJobPhase.PENDING


def _role(pod: Document) -> str:
    return str((pod["metadata"].get("labels") or {}).get(ROLE_LABEL, ""))
