"""The master on this machine: everything it needs is in the job's folder (ELASTICDL_JOB_DIR): the JobSpec, the token,
the journal. The host reserves its ports and passes them on (ELASTICDL_MASTER_PORT, ELASTICDL_PUBLIC_PORT): started
again after a kill it takes the same ones, so that workers find it where it was. ELASTICDL_ATTEMPT is above 1 in a job
that was resumed after its end.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import HISTORY_NAME, write_atomically
from elasticdl.jobs.spec import JobSpec, from_yaml
from elasticdl.jobs.status import JobStatus, RunState
from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.master import Master
from elasticdl.master.programs.node_environment import Surroundings
from elasticdl.master.services.endpoints import Servers
from elasticdl.master.services.history_writer import HistoryWriter
from elasticdl.master.status import job_status
from elasticdl.platforms.local.local_platform import LocalPlatform
from elasticdl.platforms.platform import EXIT_DEFINITION_ERROR, Platform
from elasticdl.wire.channel import add_port
from elasticdl.wire.security import CA_FILE, CERT_FILE, KEY_FILE, TLS_NAME

log = logging.getLogger("elasticdl.master")


def main() -> int:
    folder = Path(os.environ["ELASTICDL_JOB_DIR"])
    spec = from_yaml((folder / "spec.yaml").read_text())
    logging.basicConfig(
        level=spec.cluster.log_level,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        return asyncio.run(_serve(folder))
    except UserError as error:
        return _give_up(folder, spec, str(error))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return _give_up(folder, spec, f"{error.filename or folder} cannot be written: the disk is full.")


def _give_up(folder: Path, spec: JobSpec, message: str) -> int:
    log.error("%s", message)
    try:
        _write_status(
            folder, JobStatus(job=spec.job_name, kind=spec.kind, state=RunState.FAILED, message=message)
        )
    except OSError as error:
        # A disk without room for the journal has none for this either. The host has the line above.
        log.error("%s cannot be written: %s.", folder / "status.json", error.strerror)
    return EXIT_DEFINITION_ERROR


async def _serve(folder: Path) -> int:
    spec = from_yaml((folder / "spec.yaml").read_text())
    token = (folder / "token").read_text().strip()
    platform: Platform = LocalPlatform(Path(os.environ["ELASTICDL_HOST_SOCKET"]))
    environment = {"ELASTICDL_TOKEN_FILE": str(folder / "token"), "MY_POD_IP": "127.0.0.1"}
    surroundings = None
    if spec.nodes.hosts:
        platform, surroundings = _on_hosts(spec, folder, platform)
        environment |= {name: os.environ[name] for name in (CA_FILE, CERT_FILE, KEY_FILE, TLS_NAME)}
    master = Master(
        spec=spec,
        folder=folder,
        platform=platform,
        token=token,
        environment=environment,
        surroundings=surroundings,
    )
    servers = Servers(master, token)
    # The public package sends no token, so its port stays on this machine.
    if servers.public is not None and not spec.nodes.hosts:
        environment["DLROVER_MASTER_ADDR"] = _bind(servers.public.add_port, "ELASTICDL_PUBLIC_PORT")
    address = environment["MASTER_ADDR"] = _bind(
        partial(add_port, servers.own), "ELASTICDL_MASTER_PORT", is_everywhere=bool(spec.nodes.hosts)
    )
    master.recover(attempt=int(os.environ.get("ELASTICDL_ATTEMPT", "1")))
    await servers.start()
    (folder / "master.addr").write_text(address)
    log.info("Job %s: the master listens at %s.", spec.job_name, address)
    history = HistoryWriter(master, folder / HISTORY_NAME)
    # Not one of the master's own tasks: what goes wrong with it does not end the job.
    recording = asyncio.create_task(history.run())
    try:
        try:
            await master.run()
        except UserError as error:
            await master.finish_tracking("failed", error.message)
            raise
        audit = audit_ledger(master.state.ledger)
        _write_status(folder, job_status(master))
        history.record(last=True)
        await servers.stop()
        await platform.close()
        log.info("The job has %s.", master.state.outcome)
        return 0 if master.state.outcome == "succeeded" and audit.exact else 1
    finally:
        recording.cancel()
        await servers.own.stop(grace=None)


def _on_hosts(spec: JobSpec, folder: Path, local: Platform) -> tuple[Platform, Surroundings]:
    # Few jobs need it.
    from elasticdl.platforms.ssh.job_settings import settings_of
    from elasticdl.platforms.ssh.ssh_platform import SshPlatform

    settings = settings_of(spec, master_port=int(os.environ["ELASTICDL_MASTER_PORT"]))
    surroundings = Surroundings(python=settings.options.python, search_path={}, shared_cores=None)
    return SshPlatform(local, settings, folder / "hosts"), surroundings


def _bind(listen: Callable[[str], int], variable: str, *, is_everywhere: bool = False) -> str:
    """The address a server listens at, for those on this machine."""
    port = os.environ[variable]
    address = f"127.0.0.1:{port}"
    try:
        listen(f"0.0.0.0:{port}" if is_everywhere else address)
    except RuntimeError:
        raise UserError(
            f"Another process listens at {address}, which this job's master needs.",
            hint="Choose another port with --master_port, or omit the flag: any free one is then taken.",
        ) from None
    return address


def _write_status(folder: Path, status: JobStatus) -> None:
    write_atomically(folder / "status.json", status.to_text())
