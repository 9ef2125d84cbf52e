"""The master on this machine: everything it needs is in the job's folder (ELASTICDL_JOB_DIR): the JobSpec, the token,
the journal. Started again after a kill it takes the same port, so that workers find it where it was.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import sys
import time
from pathlib import Path

import grpc.aio

from elasticdl.jobs.errors import UserError
from elasticdl.jobs.folder import write_atomically
from elasticdl.jobs.spec import from_yaml
from elasticdl.master.audit import Audit
from elasticdl.master.master import Master
from elasticdl.master.serving import Servers
from elasticdl.master.status import job_status
from elasticdl.platforms.local import LocalPlatform
from elasticdl.platforms.platform import EXIT_DEFINITION_ERROR
from elasticdl.wire.channel import add_port

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
        return _give_up(folder, str(error))
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return _give_up(folder, f"{error.filename or folder} cannot be written: the disk is full.")


def _give_up(folder: Path, message: str) -> int:
    log.error("%s", message)
    try:
        _write_status(folder, {"state": "failed", "message": message})
    except OSError as error:
        # A disk without room for the journal has none for this either. The host has the line above.
        log.error("%s cannot be written: %s.", folder / "status.json", error.strerror)
    return EXIT_DEFINITION_ERROR


async def _serve(folder: Path) -> int:
    spec = from_yaml((folder / "spec.yaml").read_text())
    token = (folder / "token").read_text().strip()
    platform = LocalPlatform(Path(os.environ["ELASTICDL_HOST_SOCKET"]))
    environment = {"ELASTICDL_TOKEN_FILE": str(folder / "token"), "MY_POD_IP": "127.0.0.1"}
    master = Master(spec=spec, folder=folder, platform=platform, token=token, environment=environment)
    servers = Servers(master, token)
    if servers.public is not None:
        environment["DLROVER_MASTER_ADDR"] = _bind(servers.public, folder / "public.addr", 0, public=True)
    address = environment["MASTER_ADDR"] = _bind(
        servers.own, folder / "master.addr", spec.cluster.master_port
    )
    if servers.public is not None:
        (folder / "public.addr").write_text(environment["DLROVER_MASTER_ADDR"])
    master.recover()
    await servers.start()
    (folder / "master.addr").write_text(address)
    log.info("Job %s: the master listens at %s.", spec.job_name, address)
    try:
        await master.run()
        audit = Audit.of(master.state.ledger)
        _write_status(folder, job_status(master))
        await servers.stop()
        await platform.close()
        log.info("The job has %s.", master.state.outcome)
        return 0 if master.state.outcome == "succeeded" and audit.exact else 1
    finally:
        await servers.own.stop(grace=None)


def _bind(server: grpc.aio.Server, before: Path, wanted: int, *, public: bool = False) -> str:
    """The address it listens at: that of the master that was here before, if there was one."""
    if before.exists():
        wanted = int(before.read_text().rsplit(":", 1)[1])
    # The process that had the port before this one may be dying still.
    deadline = time.monotonic() + (10.0 if before.exists() else 0.0)
    while True:
        try:
            port = add_port(server, f"127.0.0.1:{wanted}", public=public)
        except RuntimeError:
            port = 0
        if port:
            return f"127.0.0.1:{port}"
        if time.monotonic() >= deadline:
            raise UserError(
                f"Port {wanted} of this machine is taken.",
                hint="Choose another with --master_port, or leave it away: any free one is then taken.",
            )
        time.sleep(0.1)


def _write_status(folder: Path, status: dict[str, object]) -> None:
    write_atomically(folder / "status.json", json.dumps(status))
