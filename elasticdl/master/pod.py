"""The master in a pod: what is in a job's folder on one machine is here in the job's record, a ConfigMap.

The record says what the job is, and what people wish (`wishes.json`: how many workers, to stop); the master says in it
how the job is (`status.json`) and keeps a snapshot of itself there (`state.json`). Each writes its own keys only. The
journal is in the pod, so that it outlasts its container, or on a volume (--journal_dir), where it outlasts the pod.

How it ends
    A job that has succeeded, or was stopped: exit code 0, and Kubernetes leaves the pod as completed. One that has
    failed: the pod must not be started again, so it is given a deadline that is over. Anything else (a kill, a fault of
    ours) is no end: Kubernetes starts the container again, and the job goes on from its journal.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from elasticdl.jobs.errors import UserError
from elasticdl.jobs.spec import JobSpec, from_yaml
from elasticdl.master.audit import Audit
from elasticdl.master.journal import JournalTaken
from elasticdl.master.keeping import RecordKeeper
from elasticdl.master.master import Master
from elasticdl.master.serving import Servers
from elasticdl.master.surroundings import IN_PODS
from elasticdl.platforms import naming
from elasticdl.platforms.cluster import Cluster, Document, Pauses
from elasticdl.platforms.kubernetes import KubernetesPlatform
from elasticdl.platforms.manifests import SPEC_KEY, STATE_KEY
from elasticdl.wire.channel import add_port, read_token

log = logging.getLogger("elasticdl.master")

EXIT_DONE = 0
EXIT_FAILED = 1
# Asked to go by Kubernetes in the middle of the job.
EXIT_SENT_AWAY = 143
# A deadline that is over is noticed by the machine's kubelet within seconds.
_DEADLINE_SECONDS = 30.0
# Twice what a pod has to end in.
_HANDOVER_SECONDS = 60.0


def main() -> int:
    return asyncio.run(_main(os.environ["ELASTICDL_JOB"], Path(os.environ["ELASTICDL_JOB_DIR"])))


async def _main(job: str, folder: Path) -> int:
    # Whatever happens to the cluster's API server, this process has nothing better to do than to wait for it.
    async with Cluster.connect(patience=math.inf) as cluster:
        record = await cluster.get("ConfigMap", naming.record_name(job))
        if record is None:
            print(f"Job {job} has been deleted.", file=sys.stderr)
            return EXIT_DONE
        record["kind"] = "ConfigMap"
        logging.basicConfig(
            level=logging.INFO,
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            stream=sys.stderr,
        )
        for noisy in ("httpx", "httpcore"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        sent_away = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, sent_away.set)
        try:
            spec = _spec(record)
            logging.getLogger().setLevel(spec.cluster.log_level)
            code = await _serve(cluster, spec, record, folder, sent_away)
        except UserError as error:
            log.error("%s", error)
            await RecordKeeper.last_word(cluster, job, {"state": "failed", "message": str(error)})
            code = EXIT_FAILED
        if code == EXIT_FAILED:
            await _fail_for_good(cluster, job, sent_away)
        return code


def _spec(record: Document) -> JobSpec:
    try:
        return from_yaml(record["data"][SPEC_KEY])
    except UserError as error:
        raise UserError(
            f"The elasticdl in this image cannot read the job: {error.message}",
            hint="Is it older than the one that submitted it? Build the image anew with `elasticdl zoo build`.",
        ) from error


async def _serve(
    cluster: Cluster, spec: JobSpec, record: Document, folder: Path, sent_away: asyncio.Event
) -> int:
    token = read_token(os.environ["ELASTICDL_TOKEN_FILE"])
    environment = await _addresses(cluster, spec)
    platform = KubernetesPlatform(cluster, spec, owner=record)
    master = await _in_turn(
        lambda: Master(
            spec=spec,
            folder=_folder(spec, record, folder),
            platform=platform,
            token=token,
            environment=environment,
            surroundings=IN_PODS,
        )
    )
    servers = Servers(master, token)
    everywhere = "[::]" if ":" in os.environ.get("MY_POD_IP", "") else "0.0.0.0"
    add_port(servers.own, f"{everywhere}:{naming.MASTER_PORT}")
    if servers.public is not None:
        add_port(servers.public, f"{everywhere}:{naming.SHARDS_PORT}", public=True)
    master.recover(record["data"].get(STATE_KEY))
    await servers.start()
    log.info("Job %s: the master listens at %s.", spec.job_name, environment["MASTER_ADDR"])
    keeper = RecordKeeper(cluster, master)
    running = asyncio.create_task(master.run())
    keeping = asyncio.create_task(keeper.run())
    leaving = asyncio.create_task(sent_away.wait())
    try:
        await asyncio.wait({running, keeping, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        elif keeping.done():
            keeping.result()
            log.info("The job has been deleted.")
            return EXIT_DONE
        else:
            log.info("Asked to go; the job waits for a master to come back.")
            # Nothing is answered any more that would not be in the snapshot.
            await servers.stop()
            await keeper.write()
            return EXIT_SENT_AWAY
        await keeper.write()
        log.info("The job has %s.", master.state.outcome)
        exact = Audit.of(master.state.ledger).exact
        good = master.state.outcome == "stopped" or (master.state.outcome == "succeeded" and exact)
        return EXIT_DONE if good else EXIT_FAILED
    finally:
        for task in (running, keeping, leaving):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(running, keeping, leaving, return_exceptions=True)
        await servers.stop()
        await platform.close()


async def _in_turn(begin: Callable[[], Master]) -> Master:
    """The master before this one may be on its way out, and has its journal until then."""
    pauses = Pauses(patience=_HANDOVER_SECONDS)
    while True:
        try:
            return begin()
        except JournalTaken as error:
            if not pauses.taken:
                log.info("%s Waiting for it to end.", error.message)
            if not await pauses.wait():
                raise


async def _addresses(cluster: Cluster, spec: JobSpec) -> dict[str, str]:
    """Of the service, which stays, and not of this pod."""
    name = naming.master_service_name(spec.job_name)
    service = await cluster.get("Service", name)
    if service is None:
        raise UserError(f"The service {name} of job {spec.job_name} is gone: nobody could find its master.")
    host = str(service["spec"]["clusterIP"])
    host = f"[{host}]" if ":" in host else host
    addresses = {"MASTER_ADDR": f"{host}:{naming.master_port(spec)}"}
    if spec.program == "command" and spec.model.public_client:
        addresses["DLROVER_MASTER_ADDR"] = f"{host}:{naming.shards_port(spec)}"
    return addresses


def _folder(spec: JobSpec, record: Document, folder: Path) -> Path:
    if not spec.cluster.journal_dir:
        return folder
    # A job that is submitted anew under the same name has nothing to do with what the one before it has left there.
    return Path(spec.cluster.journal_dir) / f"{spec.job_name}-{record['metadata']['uid'][:8]}"


async def _fail_for_good(cluster: Cluster, job: str, sent_away: asyncio.Event) -> None:
    await cluster.patch("Pod", naming.master_name(job), {"spec": {"activeDeadlineSeconds": 1}})
    # Ended by itself, it would be started again before that is noticed.
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(sent_away.wait(), _DEADLINE_SECONDS)
