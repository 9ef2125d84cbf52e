"""Writes the desired state of a job into its job record.

The master writes its status into the same object, so a write is conditional on the version that was read, and repeated
on a conflict. A stop that the master has not seen yet is never replaced by a size.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from elasticdl.catalog.kubernetes.observed_job import ObservedJob
from elasticdl.errors import UserError
from elasticdl.jobs.desired import Desired
from elasticdl.jobs.job_record import desired_entry
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError
from elasticdl.platforms.kubernetes.naming import record_name

# The master writes every two seconds at most, so two attempts suffice as a rule.
_ATTEMPTS = 10
_CONFLICT = 409


async def write_desired(
    cluster: Cluster,
    name: str,
    observe: Callable[[], Awaitable[ObservedJob]],
    change: Callable[[Desired], Desired],
) -> int:
    """Returns the generation of the desired state that was written. `change`: from what the master has not seen yet."""
    for _ in range(_ATTEMPTS):
        job = await observe()
        before = job.unobserved_desired
        after = change(before)
        if before.stop and not after.stop:
            raise UserError(
                f"Job {name} is to be stopped ({before.stop}), which its master has not seen yet.",
                hint=f"`elasticdl jobs status {name} --namespace={cluster.namespace}` shows its state.",
            )
        patch = {
            "metadata": {"resourceVersion": job.document["metadata"]["resourceVersion"]},
            "data": desired_entry(after),
        }
        try:
            await cluster.patch("ConfigMap", record_name(name), patch)
            return after.generation
        except ClusterError as error:
            if error.status != _CONFLICT:
                raise
    raise UserError(f"The record of job {name} changes faster than it can be written. Try again.")
