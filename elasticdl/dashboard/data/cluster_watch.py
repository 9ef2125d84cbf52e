"""Reads a cluster again and again for its page, and answers what would happen if one more job were submitted.

Only lists objects. The utilisation over time begins with the first reading, and lasts as long as the dashboard.

Failure modes
    No cluster is configured, it does not answer, or the account may not list machines: `UserError` with the reason.
    The account may not read TrainingJobs, or the cluster has none: the page has machines and pods.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from elasticdl.catalog.kubernetes.cluster_documents import read_cluster_documents
from elasticdl.catalog.kubernetes.cluster_state import state_from_documents
from elasticdl.catalog.local.background_thread import in_thread
from elasticdl.catalog.lookup import is_cluster_configured
from elasticdl.dashboard.data.cluster_page import cluster_sections, utilization
from elasticdl.dashboard.data.sections import Sections, to_json
from elasticdl.errors import UserError
from elasticdl.jobs.flags.pairs import BadValue
from elasticdl.jobs.sections.resources import Quantity
from elasticdl.platforms.kubernetes.api_resources import PADDLE_TRAINING_JOB, TRAINING_JOB
from elasticdl.platforms.kubernetes.client import Cluster, Document
from elasticdl.scheduling.cluster import ClusterState
from elasticdl.scheduling.decisions import Decision
from elasticdl.scheduling.demand import JobDemand, RoleGroup
from elasticdl.scheduling.errors import SchedulingInputError
from elasticdl.scheduling.planner import Planner

# An hour, at the interval of the page.
_POINTS = 720
_MOST_WORKERS = 100_000
_CPU, _MEMORY, _GPU = "cpu", "memory", "nvidia.com/gpu"


class ClusterWatch:
    def __init__(self) -> None:
        self._series: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=_POINTS)

    async def read(self) -> Sections:
        """Returns all sections. Raises `UserError`."""
        state, training_jobs = await self._read()
        self._series.append((time.time(), utilization(state)))
        sections = cluster_sections(state, training_jobs, self._series)
        return {key: to_json(value) for key, value in sections.items()}

    async def what_if(self, job: WhatIfJob) -> dict[str, Any]:
        """Returns what the planner would decide now if the job were submitted. Raises `UserError`."""
        state, _ = await self._read()
        return await in_thread(lambda: plan_with(state, job.demand(state)))

    async def _read(self) -> tuple[ClusterState, list[Document]]:
        if not is_cluster_configured():
            raise UserError(
                "No cluster is configured here.", hint="Set KUBECONFIG, or run the dashboard in the cluster."
            )
        async with Cluster.connect() as cluster:
            found = await read_cluster_documents(cluster)
            everywhere = cluster.all_namespaces()
            jobs: list[Document] = []
            for resource in (TRAINING_JOB, PADDLE_TRAINING_JOB):
                if await cluster.is_served(resource):
                    jobs += (await everywhere.list(resource)).items
        state = state_from_documents(found.documents, now_seconds=time.time(), ranges=found.ranges)
        return state, jobs


@dataclass(frozen=True, kw_only=True)
class WhatIfJob:
    """A job to submit in thought. Each worker requests the resources; there is nothing else to it."""

    minimum: int
    maximum: int
    resources: Mapping[str, str]
    priority: int = 0

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> WhatIfJob:
        """Reads the query of a request. Raises `UserError`."""
        low = _count(values.get("min", "1"), "min", least=1)
        high = _count(values.get("max", str(low)), "max", least=low)
        given = {_CPU: values.get("cpu", ""), _MEMORY: values.get("memory", ""), _GPU: values.get("gpu", "")}
        resources = {name: text for name, text in given.items() if text}
        if not resources:
            raise UserError("Give what a worker requests: cpu, memory or gpu.")
        return cls(
            minimum=low,
            maximum=high,
            resources=resources,
            priority=_count(values.get("priority", "0"), "priority", least=0, most=1_000_000_000),
        )

    def demand(self, state: ClusterState) -> JobDemand:
        taken = {job.key for job in state.jobs}
        name = next(
            each
            for each in ("what-if", *(f"what-if-{number}" for number in range(len(taken) + 1)))
            if f"default/{each}" not in taken
        )
        requests = {
            resource: _units(text, resource, scale=1000 if resource == _CPU else 1)
            for resource, text in self.resources.items()
        }
        group = RoleGroup(role="worker", minimum=self.minimum, maximum=self.maximum, requests=requests)
        return JobDemand(
            name=name, groups=(group,), priority=self.priority, submitted_at_seconds=state.now_seconds
        )


def plan_with(state: ClusterState, extra: JobDemand) -> dict[str, Any]:
    """Returns the decision about the extra job, and those about jobs that would change."""
    try:
        plan = Planner().plan(replace(state, jobs=(*state.jobs, extra)))
    except SchedulingInputError as error:
        raise UserError(f"The cluster cannot be planned for: {error}.") from None
    return {
        "job": next(_described(each) for each in plan.decisions if each.job == extra.key),
        "others": [
            _described(each)
            for each in plan.decisions
            if each.job != extra.key and each.size != each.previous_size
        ],
    }


def _described(decision: Decision) -> dict[str, Any]:
    return {
        "job": decision.job,
        "decision": type(decision).__name__,
        "size": decision.size,
        "previous_size": decision.previous_size,
        "reason": decision.reason,
    }


def _count(text: str, name: str, *, least: int, most: int = _MOST_WORKERS) -> int:
    if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
        raise UserError(f"{name}: expected a number from {least} to {most}.")
    return int(text)


def _units(text: str, name: str, *, scale: int) -> int:
    try:
        return int(Quantity(text=text.strip()).amount * scale)
    except BadValue:
        raise UserError(
            f"{name}: {text!r} is no quantity.", hint="Write 4, 0.5 or 500m; for memory 8Gi or 512Mi."
        ) from None
