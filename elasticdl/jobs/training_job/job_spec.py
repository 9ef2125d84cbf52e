"""Converts a TrainingJob to a JobSpec: the job that its master runs.

`spec.job` is a JobSpec already; it gets the name and namespace of the object and what the spec adds to its pods.
Otherwise the trainers run `trainer.entrypoint` in `trainer.workspace` as a job command, and find in their environment
what PaddlePaddle EDL put there (`edl_environment`). The counts in it are the minimum, as they were there: a program
that takes its data from the master does not need them, and one that does not is not scaled.

Parameter servers of a job command belong to its framework, which knows their addresses: there are always
`pserver.min-instance` of them. ElasticDL's own servers, of a job with a model definition, are scaled between minimum
and maximum.

Failure modes
    `parsing` has checked the object, so a JobSpec that cannot be built is a problem of a combination that only JobSpec
    knows: `UserError` with its sentences.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.sections.pod_fields import PodFields, parse_pod_fields
from elasticdl.jobs.sections.resources import GPU, Resources
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.training_job.resource import RoleResources, TrainingJob, TrainingJobSpec
from elasticdl.jobs.validation import problems

_ROLES = ("master", "ps", "worker")


def job_spec_of(job: TrainingJob) -> JobSpec:
    """Returns the job to run. It begins with the minimum of every role. Raises `UserError`."""
    spec = _of_job(job) if job.spec.job is not None else _of_entrypoint(job)
    # Combinations of `job` and the fields beside it.
    found = [problem.message for problem in problems(spec)]
    if found:
        raise UserError(" ".join(found))
    return spec


def edl_environment(job: TrainingJob) -> dict[str, str]:
    """Returns the variables of PaddlePaddle EDL for programs that read them."""
    spec = job.spec
    gpus = _gpus(spec.trainer.resources)
    cpu = spec.trainer.resources.requests.cpu
    threads = gpus or (max(1, math.ceil(cpu.amount)) if cpu else 1)
    return {
        "PADDLE_JOB_NAME": job.name,
        "NAMESPACE": job.namespace,
        "TRAINERS": str(spec.trainer.min_instance),
        "PSERVERS": str(spec.pserver.min_instance),
        "ENTRY": spec.trainer.entrypoint,
        "TOPOLOGY": spec.trainer.entrypoint,
        "TRAINER_PACKAGE": spec.trainer.workspace,
        "PADDLE_INIT_PORT": str(spec.port),
        "PADDLE_INIT_PORTS_NUM": str(spec.ports_num),
        "PADDLE_INIT_PORTS_NUM_FOR_SPARSE": str(spec.ports_num_for_sparse),
        "PADDLE_INIT_NUM_GRADIENT_SERVERS": str(spec.trainer.min_instance),
        "PADDLE_INIT_NUM_PASSES": str(spec.passes or spec.trainer.passes),
        "PADDLE_INIT_TRAINER_COUNT": str(threads),
        "PADDLE_INIT_USE_GPU": "1" if gpus else "0",
    }


def _of_entrypoint(job: TrainingJob) -> JobSpec:
    spec = job.spec
    command = spec.trainer.entrypoint
    if spec.trainer.workspace:
        command = f"cd {shlex.quote(spec.trainer.workspace)} && {command}"
    servers = spec.pserver.min_instance
    fields = _pod_fields(spec)
    flags: dict[str, Any] = {
        "job_name": job.name,
        "namespace": job.namespace,
        "image_name": spec.image,
        "job_command": command,
        "num_workers": spec.trainer.min_instance,
        "min_workers": spec.trainer.min_instance,
        "max_workers": spec.trainer.max_instance,
        "num_epochs": spec.passes or spec.trainer.passes or None,
        "num_ps": servers or None,
        "envs": edl_environment(job),
        "cluster_spec_json": json.dumps(fields) if fields else None,
    }
    for role, part in (
        ("worker", spec.trainer.resources),
        ("ps", spec.pserver.resources),
        ("master", spec.master.resources),
    ):
        flags[f"{role}_resource_request"] = part.requests or None
        flags[f"{role}_resource_limit"] = part.limits or None
        flags[f"{role}_pod_priority"] = spec.priority_class_name or None
    return JobSpec.build(kind="train", **flags)


def _of_job(job: TrainingJob) -> JobSpec:
    given = job.spec.job
    assert given is not None
    trainer, servers = job.spec.trainer, job.spec.pserver
    nodes = dataclasses.replace(
        given.nodes,
        num_workers=min(max(given.nodes.num_workers, trainer.min_instance), trainer.max_instance),
        min_workers=trainer.min_instance,
        max_workers=trainer.max_instance,
    )
    if servers.max_instance:
        nodes = dataclasses.replace(nodes, min_ps=servers.min_instance, max_ps=servers.max_instance)
    if name := job.spec.priority_class_name:
        priorities: dict[str, Any] = {
            f"{role}_pod_priority": given.nodes.pod_priority(role) or name for role in _ROLES
        }
        nodes = dataclasses.replace(nodes, **priorities)
    cluster = dataclasses.replace(given.cluster, namespace=job.namespace)
    if added := _pod_fields(job.spec):
        own = parse_pod_fields(given.cluster.cluster_spec_json or "{}")
        cluster = dataclasses.replace(cluster, cluster_spec_json=json.dumps(_joined(added, own)))
    return dataclasses.replace(given, job_name=job.name, nodes=nodes, cluster=cluster)


def _pod_fields(spec: TrainingJobSpec) -> PodFields:
    """Returns the fields that the spec adds to pods, in the form of `--cluster_spec`."""
    everywhere: dict[str, Any] = {}
    for key, value in (
        ("volumes", list(spec.volumes)),
        ("volumeMounts", list(spec.volume_mounts)),
        ("imagePullSecrets", list(spec.image_pull_secrets)),
        ("nodeSelector", dict(spec.node_selector)),
        ("tolerations", list(spec.tolerations)),
    ):
        if value:
            everywhere[key] = value
    fields: PodFields = {"pod_spec": everywhere} if everywhere else {}
    if spec.host_network:
        # Not the master: several masters may be on one machine, and all have the same port.
        of_host = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
        fields |= {"worker_spec": dict(of_host), "ps_spec": dict(of_host)}
    return fields


def _joined(added: PodFields, own: PodFields) -> PodFields:
    """Both; where they say the same, the job's own counts."""
    result = {role: dict(fields) for role, fields in added.items()}
    for role, fields in own.items():
        target = result.setdefault(role, {})
        for key, value in fields.items():
            before = target.get(key)
            if isinstance(before, list) and isinstance(value, list):
                target[key] = [*before, *(entry for entry in value if entry not in before)]
            elif isinstance(before, dict) and isinstance(value, dict):
                target[key] = {**before, **value}
            else:
                target[key] = value
    return result


def _gpus(resources: RoleResources) -> int:
    def count(part: Resources) -> int:
        return int(part.devices[GPU].amount) if GPU in part.devices else 0

    return count(resources.requests) or count(resources.limits)
