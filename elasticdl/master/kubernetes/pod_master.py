"""The master in a pod. The content of a job's folder on one machine is here in the job's record, a ConfigMap.

The record holds the job's spec and its desired state; the master writes its status and a snapshot of itself there
(`elasticdl.jobs.job_record`). The journal is in the pod, so that it outlasts its container, or on a volume
(--journal_dir), where it outlasts the pod.

Exit
    The job has succeeded, or was stopped: exit code 0, and Kubernetes leaves the pod as completed. The job has failed:
    the pod must not be restarted, so it gets a deadline in the past. After anything else (a kill, a bug), Kubernetes
    restarts the container, and the job continues from its journal.

Failure modes
    The record cannot be written: an error in the log; the job continues (`record_sync.py`). The account may not read
    the record or the pods: the last lines of the container name the missing right, and the next start of the container
    retries, since an API server that has just started may refuse rights that it grants later. Another pod is the master
    now: this one exits, and changes neither the record nor the job's pods (`record_writer.py`). Another master holds
    the journal: this one waits, and takes it over where that is safe (`journal_takeover.py`). Where that cannot be
    decided, the container exits and the next one waits. None of these ends the job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.job_record import JobRecord
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.journal import Holder, Journal, JournalTaken, holder_of
from elasticdl.master.kubernetes.journal_takeover import BEAT_SECONDS, Handover, in_words
from elasticdl.master.kubernetes.record_sync import RecordSync, report_failure, report_waiting
from elasticdl.master.kubernetes.record_writer import RecordWriter, Replaced
from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.master import Master, journal_folder
from elasticdl.master.programs.node_environment import IN_PODS
from elasticdl.master.services.endpoints import Servers
from elasticdl.platforms.kubernetes import http_transport, naming
from elasticdl.platforms.kubernetes.client import MAY_NOT, Cluster, ClusterError, Document
from elasticdl.platforms.kubernetes.kubernetes_platform import KubernetesPlatform
from elasticdl.platforms.kubernetes.manifests import SIGN_OF_LIFE_SECONDS
from elasticdl.wire.channel import add_port, read_token

log = logging.getLogger("elasticdl.master")

EXIT_DONE = 0
EXIT_FAILED = 1
# Not now: for the next start of the container.
EXIT_AGAIN = 75
# Terminated by Kubernetes in the middle of the job.
EXIT_TERMINATED = 143
# A deadline that is over is noticed by the machine's kubelet within seconds.
_DEADLINE_SECONDS = 30.0
# After this long a new container restarts the wait.
_HANDOVER_SECONDS = 600.0
_HANDOVER_PAUSE_SECONDS = 2.0
# A terminating pod has thirty seconds in all.
_FAREWELL_SECONDS = 15.0


def main() -> int:
    return asyncio.run(_main(os.environ["ELASTICDL_JOB"], Path(os.environ["ELASTICDL_JOB_DIR"])))


async def _main(job: str, folder: Path) -> int:
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for noisy in http_transport.LOGGERS:
        logging.getLogger(noisy).setLevel(logging.WARNING)
    terminated = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminated.set)
    # Whatever happens to the cluster's API server, this process has nothing better to do than to wait for it. By the
    # account of this pod: KUBECONFIG and HOME may be those of the shell that the job was submitted in.
    async with Cluster.inside(patience=math.inf) as cluster:
        return await run(cluster, job, folder, terminated)


async def run(cluster: Cluster, job: str, folder: Path, terminated: asyncio.Event) -> int:
    """Returns the exit code. What is printed last are the last lines of the container."""
    writer = RecordWriter(cluster, job, uid=os.environ.get("ELASTICDL_POD_UID", ""))
    try:
        return await _run(cluster, writer, folder, terminated)
    except JournalTaken as error:
        log.error("%s The job waits for its turn.", error)
    except (Replaced, ClusterError) as error:
        log.error("%s", error)
    return EXIT_TERMINATED if terminated.is_set() else EXIT_AGAIN


async def _run(cluster: Cluster, writer: RecordWriter, folder: Path, terminated: asyncio.Event) -> int:
    """Raises what is no end of the job."""
    job = writer.job
    try:
        record = await writer.claim()
    except ClusterError as error:
        print(_may_not_keep(job, cluster.namespace, error), file=sys.stderr)
        return EXIT_FAILED
    if record is None:
        print(f"Job {job} has been deleted.", file=sys.stderr)
        return EXIT_DONE
    record["kind"] = "ConfigMap"
    try:
        spec = _spec(record)
        logging.getLogger().setLevel(spec.cluster.log_level)
        code = await _serve(cluster, writer, spec, record, folder, terminated)
    except UserError as error:
        if _is_for_next_start(error):
            raise
        log.error("%s", error)
        await report_failure(writer, str(error))
        code = EXIT_FAILED
    if code == EXIT_FAILED:
        await _fail_for_good(cluster, writer, terminated)
    return code


def _is_for_next_start(error: UserError) -> bool:
    """Whether the job goes on: with another master, or with the next container of this one."""
    is_forbidden = isinstance(error, ClusterError) and error.status in MAY_NOT
    return is_forbidden or isinstance(error, (JournalTaken, Replaced))


def _may_not_keep(job: str, namespace: str, error: ClusterError) -> UserError:
    words = f"The master of job {job} may not keep the job's record: {error.message}"
    if error.status not in MAY_NOT:
        return UserError(words, hint=error.hint)
    return UserError(
        words,
        hint=f"`kubectl apply --namespace={namespace} -f elasticdl/manifests/elasticdl-rbac.yaml` gives the right to "
        "the account elasticdl; --service_account is for one of another name. The master tries again by itself.",
    )


async def _current_uid(cluster: Cluster, job: str) -> str:
    """Returns the uid of the pod that has the name of the job's master now; empty if there is none, or unknown."""
    try:
        pod = await cluster.get("Pod", naming.master_name(job))
    except ClusterError as error:
        log.warning("Which pod is the master of job %s is not known: %s", job, error)
        return ""
    return str(pod["metadata"]["uid"]) if pod is not None else ""


def _spec(record: Document) -> JobSpec:
    try:
        return JobRecord.of(record["data"]).spec()
    except UserError as error:
        raise UserError(
            f"The elasticdl in this image cannot read the job: {error.message}",
            hint="Is it older than the one that submitted it? Rebuild the image with `elasticdl zoo build`.",
        ) from error


async def _serve(
    cluster: Cluster,
    writer: RecordWriter,
    spec: JobSpec,
    record: Document,
    folder: Path,
    terminated: asyncio.Event,
) -> int:
    token = read_token(os.environ["ELASTICDL_TOKEN_FILE"])
    pod_ip = os.environ.get("MY_POD_IP", "")
    platform = KubernetesPlatform(cluster, spec, owner=record, before_changes=writer.check, pod_ip=pod_ip)
    folder = _folder(spec, record, folder)
    journal = await _in_turn(cluster, writer, journal_folder(folder), terminated)
    servers: Servers | None = None
    tasks: set[asyncio.Task[Any]] = set()
    looking = asyncio.create_task(platform.nodes())
    try:
        environment = await _addresses(cluster, spec)
        # A missing permission is reported before the first write to the record, which the submitting command waits for.
        nodes = await looking
        master = Master(
            spec=spec,
            folder=folder,
            platform=platform,
            token=token,
            environment=environment,
            surroundings=IN_PODS,
            journal=journal,
            clock=asyncio.get_running_loop().time,
            submitted=JobRecord.of(record["data"]).spec_text,
        )
        master.recover(JobRecord.of(record["data"]).snapshot)
        master.supervisor.straggler_time.seconds = straggler_seconds(record)
        running = asyncio.create_task(master.run())
        leaving = asyncio.create_task(terminated.wait())
        beating = asyncio.create_task(_beat(journal))
        tasks |= {running, leaving, beating}
        if not nodes and not master.state.reclaim.is_collecting:
            # There is no node yet that would call, and a job that begins waits for its nodes and for nothing else.
            await _nodes_asked_for(master, tasks)
        servers = Servers(master, token)
        everywhere = naming.everywhere(pod_ip)
        add_port(servers.own, naming.address(everywhere, naming.MASTER_PORT))
        if servers.public is not None:
            servers.public.add_port(naming.address(everywhere, naming.SHARDS_PORT))
        await servers.start()
        log.info("Job %s: the master listens at %s.", spec.job_name, environment["MASTER_ADDR"])
        record_sync = RecordSync(cluster, master, writer)
        keeping = asyncio.create_task(record_sync.run())
        tasks.add(keeping)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            try:
                running.result()
            except UserError as error:
                if not _is_for_next_start(error):
                    await master.finish_tracking("failed", error.message)
                raise
        elif beating.done():
            beating.result()
        elif keeping.done():
            keeping.result()
            log.info("The job has been deleted.")
            return EXIT_DONE
        else:
            log.info("Exiting on SIGTERM: the job waits for its next master.")
            # Nothing is answered any more that would not be in the snapshot.
            await servers.stop()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(record_sync.write_final(seconds=_FAREWELL_SECONDS), _FAREWELL_SECONDS)
            return EXIT_TERMINATED
        await record_sync.write_final()
        log.info("The job has %s.", master.state.outcome)
        exact = audit_ledger(master.state.ledger).exact
        good = master.state.outcome == "stopped" or (master.state.outcome == "succeeded" and exact)
        return EXIT_DONE if good else EXIT_FAILED
    finally:
        for task in (looking, *tasks):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(looking, *tasks, return_exceptions=True)
        if servers is not None:
            await servers.stop()
        await platform.close()
        journal.close()


def straggler_seconds(record: Document) -> float:
    """Returns the straggler seconds that the previous master has counted."""
    try:
        return JobRecord.of(record["data"]).status().straggler_seconds
    except UserError:
        # Written by a newer version. Counting begins again.
        return 0.0


async def _nodes_asked_for(master: Master, tasks: set[asyncio.Task[Any]]) -> None:
    """Waits until nodes have been requested, or one of the tasks has ended."""
    asked = asyncio.create_task(master.supervisor.first_node_requested.wait())
    try:
        await asyncio.wait({asked, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()


async def _in_turn(
    cluster: Cluster, writer: RecordWriter, folder: Path, terminated: asyncio.Event
) -> Journal:
    """The master before this one may be on its way out, and has its journal until then; or it is lost, and its lock
    is not. Raises `JournalTaken` if that has not been found out in a long while.
    """
    job, uid, loop = writer.job, writer.uid, asyncio.get_running_loop()
    mine = Holder(pod=naming.master_name(job), uid=uid, since=time.time()) if uid else None
    handover, deadline, logged = Handover(uid), loop.time() + _HANDOVER_SECONDS, ""
    by_force, tell_at = False, 0.0
    while True:
        try:
            return Journal(folder, holder=mine, by_force=by_force)
        except JournalTaken:
            if terminated.is_set() or loop.time() >= deadline:
                raise
        holder = holder_of(folder)
        words = in_words(holder, folder)
        if words != logged:
            logged, tell_at = words, loop.time()
            log.warning("%s Waiting for it to end.", words)
        if loop.time() >= tell_at:
            tell_at = loop.time() + SIGN_OF_LIFE_SECONDS
            await report_waiting(writer, words)
        by_force = handover.may_take(holder, current=await _current_uid(cluster, job), now=loop.time())
        if by_force:
            log.warning("%s Taking over the journal: its holder has ended.", words)
            continue
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(terminated.wait(), _HANDOVER_PAUSE_SECONDS)


async def _beat(journal: Journal) -> None:
    """Renews the lock while this is the journal's master. Raises `JournalTaken` when another one is."""
    while True:
        await asyncio.sleep(BEAT_SECONDS)
        journal.beat()


async def _addresses(cluster: Cluster, spec: JobSpec) -> dict[str, str]:
    """Returns the addresses of the service, which stays, not of this pod."""
    name = naming.master_service_name(spec.job_name)
    service = await cluster.get("Service", name)
    if service is None:
        raise UserError(f"The service {name} of job {spec.job_name} is gone: no node could find its master.")
    host = str(service["spec"]["clusterIP"])
    addresses = {"MASTER_ADDR": naming.address(host, naming.master_port(spec))}
    if spec.program == "command" and spec.model.public_client:
        addresses["DLROVER_MASTER_ADDR"] = naming.address(host, naming.shards_port(spec))
    return addresses


def _folder(spec: JobSpec, record: Document, folder: Path) -> Path:
    if not spec.cluster.journal_dir:
        return folder
    # A job that is resubmitted under the same name has nothing to do with what the one before it has left there.
    return Path(spec.cluster.journal_dir) / f"{spec.job_name}-{record['metadata']['uid'][:8]}"


async def _fail_for_good(cluster: Cluster, writer: RecordWriter, terminated: asyncio.Event) -> None:
    # With its uid, which cannot be changed: what is meant for this pod is refused by any other of that name.
    only_this = {"metadata": {"uid": writer.uid}} if writer.uid else {}
    try:
        await cluster.patch(
            "Pod", naming.master_name(writer.job), {**only_this, "spec": {"activeDeadlineSeconds": 1}}
        )
    except ClusterError as error:
        log.error("Kubernetes will start the failed master again: %s", error)
        return
    # Ended by itself, it would be started again before that is noticed.
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(terminated.wait(), _DEADLINE_SECONDS)
