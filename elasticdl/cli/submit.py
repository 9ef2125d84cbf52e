"""Submitting a job to a cluster: its objects are made, and its master runs from then on without us.

The record comes first, because it owns the rest: whatever is interrupted here, `elasticdl jobs delete` removes it
all. A submission ends when the master has written its first status into the record, or with what keeps it from that:
in Kubernetes' own words, and with the end of the master's log if it has begun and ended. With `--wait` it goes on to
show the job until its end, as a job on this machine is shown; Ctrl-C then ends the looking, not the job.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import os
import re
import secrets
import stat
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from elasticdl.cli.cluster_jobs import OWNED, ClusterJob, ClusterJobs
from elasticdl.cli.cluster_logs import last_lines
from elasticdl.cli.cluster_state import FINAL, came_up, never_began, state_of, status_of, trouble_of
from elasticdl.cli.output.display import EXIT_INTERRUPTED, Display
from elasticdl.cli.removal import Say
from elasticdl.errors import UserError
from elasticdl.jobs.flags.pairs import BadValue
from elasticdl.jobs.sections import reserved
from elasticdl.jobs.sections.pod_fields import parse_pod_fields
from elasticdl.jobs.spec import JobSpec, from_yaml, to_yaml
from elasticdl.platforms.kubernetes.client import (
    Cluster,
    ClusterAway,
    ClusterError,
    Document,
    owners_of,
    uid_of,
)
from elasticdl.platforms.kubernetes.credentials import Credentials
from elasticdl.platforms.kubernetes.kubeconfig import current_namespace
from elasticdl.platforms.kubernetes.manifests import manifests, marked, owned
from elasticdl.platforms.kubernetes.naming import JOB_LABEL, master_name, record_name
from elasticdl.platforms.kubernetes.pods.events import last_trouble
from elasticdl.platforms.kubernetes.pods.status import (
    grace_seconds,
    last_end,
    leaving,
    node_status,
    on_its_way,
    unreachable,
)
from elasticdl.platforms.platform import EndReason, NodePhase

# A master whose pod waits for room may wait for hours; the job is submitted all the same.
_START_SECONDS = 60.0
# A volume that is not there at once may be there in a moment; after this long it is a trouble to tell of.
_TROUBLE_SECONDS = 8.0
# How Kubernetes calls a pod that finds no room: a job may well wait for that.
_WAITS_FOR_ROOM = "Unschedulable"
# What a job that was deleted has left goes by itself, within seconds. What a pod may take for its end is added.
_GOING_SECONDS = 60.0
_POLL_SECONDS = 0.2
_FOLLOW_SECONDS = 1.0
# Of the log of a master that has ended, enough for a traceback.
_LAST_LINES = 20

_Result = TypeVar("_Result")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Start:
    """How the master has begun: well, if there is no problem with it."""

    problem: str = ""
    # The end of its log.
    lines: tuple[str, ...] = ()
    # Nothing is wrong yet: it may have to wait for room, or take its time.
    waits: bool = False
    # It is started again and again.
    ends: bool = False
    # It has said its first word, and that was its last.
    failed: bool = False


def manifests_text(spec: JobSpec, environment: Mapping[str, str] | None = None) -> str:
    """All that would be made, as a file for `kubectl apply -f`. It has new secrets in it each time."""
    documents = manifests(prepared(spec, environment), Credentials.make(spec.job_name))
    return "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)


def write_manifests(spec: JobSpec, path: Path) -> None:
    try:
        # It has the job's token and key in it.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                # One that was there before has the mode that it had.
                os.fchmod(file.fileno(), 0o600)
            file.write(manifests_text(spec))
    except OSError as error:
        raise UserError(f"--yaml: {path} cannot be written: {error.strerror}.") from None


def submit(spec: JobSpec, display: Display, *, wait: bool) -> int:
    """Returns the exit code: 0 if the job is under way, or has succeeded if it was to be waited for."""
    spec = prepared(spec)
    jobs = ClusterJobs(spec.cluster.namespace)
    job = ClusterJob(jobs, spec.job_name)
    submitted = False
    try:
        jobs.do(lambda cluster: _create(cluster, spec, display.note))
        submitted = True
        display.begin(
            spec, f"submitted to namespace {spec.cluster.namespace}; follow it with {job.logs_place} -f"
        )
        start = jobs.do(
            lambda cluster: (
                _patiently(lambda: _started(cluster, spec.job_name), display)
                if wait
                else _started(cluster, spec.job_name)
            )
        )
        if start.problem:
            _tell(start, job, display)
        if start.ends or not (wait or start.failed):
            return 0 if not start.problem or start.waits else 1
        return jobs.do(lambda cluster: _follow(cluster, job, display))
    except KeyboardInterrupt:
        goes_on = f"goes on; `{job.command('stop')}` would stop it"
        display.note(f"Job {spec.job_name} {goes_on if submitted else 'has not been submitted'}.")
        return EXIT_INTERRUPTED
    finally:
        display.close()


def submit_and_wait(spec: JobSpec, display: Display) -> dict[str, Any]:
    """Returns the last status of the job."""
    spec = prepared(spec)
    submit(spec, display, wait=True)
    jobs = ClusterJobs(spec.cluster.namespace)
    job = ClusterJob(jobs, spec.job_name)
    status = jobs.do(lambda cluster: _patiently(lambda: job.current(cluster), display))
    return {**status, "message": status.get("message") or status.get("trouble", "")}


def prepared(spec: JobSpec, environment: Mapping[str, str] | None = None) -> JobSpec:
    """The job with what it takes from the place of its submission: variables, a file, a namespace."""
    nodes, cluster = spec.nodes, spec.cluster
    if nodes.populate_env_names:
        variables = os.environ if environment is None else environment
        found = {
            name: value
            for name, value in sorted(variables.items())
            if re.fullmatch(nodes.populate_env_names, name) and not name.startswith(reserved.OF_THE_CLUSTER)
        }
        if taken := sorted(found.keys() & reserved.variables(spec) - nodes.envs.keys()):
            raise UserError(
                f"--populate_env_names: {' and '.join(taken)}: set by the master and cannot be given.",
                hint="Choose a pattern without such names, or unset them here.",
            )
        # What was said explicitly counts.
        nodes = dataclasses.replace(nodes, envs={**found, **nodes.envs}, populate_env_names="")
    if not cluster.namespace:
        cluster = dataclasses.replace(cluster, namespace=current_namespace())
    if cluster.cluster_spec:
        text = _pod_fields(Path(cluster.cluster_spec))
        cluster = dataclasses.replace(cluster, cluster_spec="", cluster_spec_json=text)
    whole = dataclasses.replace(spec, nodes=nodes, cluster=cluster)
    # With what is in the file there is more to check.
    return from_yaml(to_yaml(whole)) if spec.cluster.cluster_spec else whole


def _pod_fields(path: Path) -> str:
    """The file of --cluster_spec, checked, as the text that --cluster_spec_json would have."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"--cluster_spec: {path} cannot be read: {error.strerror}.") from None
    try:
        return json.dumps(parse_pod_fields(text))
    except (BadValue, UnicodeDecodeError) as problem:
        raise UserError(f"--cluster_spec: {path}: {problem}") from None


async def _create(cluster: Cluster, spec: JobSpec, say: Say) -> None:
    record, *others = manifests(spec, Credentials.make(spec.job_name))
    try:
        owner = await cluster.create(marked(record, secrets.token_hex(8)))
    except ClusterError as error:
        if error.reason == "AlreadyExists":
            raise UserError(
                f"The job name {spec.job_name} is in use in namespace {cluster.namespace}.",
                hint="Choose another --job_name, or remove that job: "
                f"`elasticdl jobs delete {spec.job_name} --namespace={cluster.namespace}`.",
            ) from None
        raise
    try:
        for document in others:
            await _create_owned(cluster, owned(document, {**owner, "kind": "ConfigMap"}), say)
    except BaseException:
        # Half a job is no job.
        await cluster.delete("ConfigMap", record["metadata"]["name"], uid=uid_of(owner))
        raise


async def _create_owned(cluster: Cluster, document: Document, say: Say) -> None:
    """What is left of a job of the same name, whose record was deleted a moment ago, is waited for."""
    kind, name = document["kind"], document["metadata"]["name"]
    begun, longest, told = time.monotonic(), 0.0, False
    while True:
        try:
            await cluster.create(document)
            return
        except ClusterError as error:
            if error.reason != "AlreadyExists":
                raise
        there = await cluster.get(kind, name)
        if there is not None:
            if not leaving(there) and owners_of(there) == owners_of(document):
                # The job's own: somebody has resumed it as soon as its record was there.
                return
            if not leaving(there) and not owners_of(there):
                raise _of_no_job(cluster, document, there)
            longest = max(longest, grace_seconds(there))
        if time.monotonic() > begun + longest + _GOING_SECONDS:
            raise UserError(
                f"{kind} {name} of a job that had this name before does not go.",
                hint=f"`kubectl describe {kind.lower()} {name} --namespace={cluster.namespace}` shows what holds it.",
            )
        if not told:
            told = True
            say(f"Waiting for the end of {kind} {name}, of a job that had this name before.")
        await asyncio.sleep(_POLL_SECONDS)


def _of_no_job(cluster: Cluster, document: Document, there: Document) -> UserError:
    kind, name = document["kind"], document["metadata"]["name"]
    job = document["metadata"]["labels"][JOB_LABEL]
    which, what = f"{kind.lower()} {name}", "it"
    if (there["metadata"].get("labels") or {}).get(JOB_LABEL) == job:
        # Of a job that was made with kubectl, and all the rest of it is there still, as a rule.
        which, what = f"{','.join(OWNED).lower()} --selector={JOB_LABEL}={job}", "all that is left of it"
    return UserError(
        f"There is a {kind} {name} in namespace {cluster.namespace} already, of no job that is there.",
        hint=f"`kubectl delete {which} --namespace={cluster.namespace}` removes {what}.",
    )


def _tell(start: _Start, job: ClusterJob, display: Display) -> None:
    display.note(f"The master of job {job.name} has not started: {start.problem}")
    for line in start.lines:
        display.note(f"master | {line}")
    display.note(f"Kubernetes goes on trying; `{job.command('stop')}` gives up.")


async def _started(cluster: Cluster, job: str) -> _Start:
    """When the master has said its first word, or what keeps it from that."""
    deadline, ask_at = time.monotonic() + _START_SECONDS, time.monotonic() + _TROUBLE_SECONDS
    while time.monotonic() < deadline:
        record, pod = await asyncio.gather(
            cluster.get("ConfigMap", record_name(job)), cluster.get("Pod", master_name(job))
        )
        if record is None or pod is None:
            return _Start(problem="its pod has been deleted.")
        if came_up(record):
            return _Start(failed=state_of(record, pod) == "failed")
        # Of a container that is started whenever it ends, the pod's phase says nothing.
        if end := last_end(pod):
            return await _ended(cluster, pod, end)
        status = node_status(pod)
        if status.message:
            return _Start(problem=status.message, waits=status.message.startswith(_WAITS_FOR_ROOM))
        if time.monotonic() > ask_at and on_its_way(pod):
            ask_at = math.inf
            if words := await last_trouble(cluster, pod):
                return _Start(problem=words)
        await asyncio.sleep(_POLL_SECONDS)
    return _Start(problem=f"nothing is known of it after {_START_SECONDS:.0f} s.", waits=True)


async def _ended(cluster: Cluster, pod: Document, end: str) -> _Start:
    status = node_status(pod)
    # What could not even be started has no log.
    if status.reason is EndReason.CANNOT_START:
        return _Start(problem=end, ends=True)
    runs_again = status.phase is NodePhase.RUNNING
    lines = await last_lines(cluster, pod["metadata"]["name"], _LAST_LINES, previous=runs_again)
    return _Start(problem=f"it has ended: {end}", lines=lines, ends=True)


async def _follow(cluster: Cluster, job: ClusterJob, display: Display) -> int:
    """Until the job is over, or has lost its master."""
    told = ""
    while True:
        record, master = await _patiently(lambda: job.documents(cluster), display)
        status, state = status_of(record), state_of(record, master)
        if state in FINAL:
            display.end({"job": job.name, **status}, job.logs_place)
            return _exit_code(status, state)
        trouble = trouble_of(record, master, cluster.now)
        if trouble and trouble != told:
            display.note(f"The master of job {job.name}: {trouble}.")
        told = trouble
        if master and last_end(master) and never_began(record, master):
            raise UserError(
                f"The master of job {job.name} has not started: {trouble}.",
                hint=f"Kubernetes goes on trying; `{job.command('stop')}` gives up.",
            )
        # A machine that does not answer may do so again; if not, Kubernetes gives up its pods after some minutes.
        if state == "interrupted" and not (master and unreachable(master)):
            raise UserError(
                f"The master of job {job.name} is gone.",
                hint=job.without_master,
            )
        if "nodes" in status:
            display.show(status)
        await asyncio.sleep(_FOLLOW_SECONDS)


async def _patiently(ask: Callable[[], Awaitable[_Result]], display: Display) -> _Result:
    """Who waits for the end of a job waits for a cluster that does not answer, too, and is told of it once."""
    told = False
    while True:
        try:
            return await ask()
        except ClusterAway as error:
            if not told:
                display.note(f"{error.message} Waiting for it.")
            told = True


def _exit_code(status: dict[str, Any], state: str) -> int:
    audit: Document | None = status.get("audit")
    if state == "succeeded":
        return 0 if audit is None or audit["exact"] else 1
    return EXIT_INTERRUPTED if state == "stopped" else 1
