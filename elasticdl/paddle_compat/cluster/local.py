"""The nodes of a job as processes of this machine: what a cluster does for pods, for one machine.

Node N has the loopback address 127.0.0.(N+1), so that all use the same ports, as pods do. A node that dies is replaced
with a new identity; one that rejects its input ends the run. A node that is frozen is killed, and so replaced
(heartbeats.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from elasticdl.errors import ExitCode, UserError
from elasticdl.paddle_compat.cluster.heartbeats import (
    HeartbeatMonitor,
    Observation,
    beat_file,
    read_beat,
    stopped_descendant,
)
from elasticdl.paddle_compat.cluster.membership import Member, Phase, write_members
from elasticdl.paddle_compat.cluster.node import MEMBERS_FILE, OWN_UID, check_folders, check_output, tail
from elasticdl.paddle_compat.cluster.variables import Variables, check_port_range
from elasticdl.platforms.local.process_tree import die_with_parent, process_table

log = logging.getLogger("elasticdl.paddle")

_POLL_SECONDS = 0.2
_LEAVE_SECONDS = 10.0
_SHOWN_LINES = 8
_NODE_COMMAND = (sys.executable, "-u", "-m", "elasticdl.paddle_compat.cluster.node")
# Much longer than a busy machine keeps a thread waiting that runs for a moment every second.
HEARTBEAT_TIMEOUT_SECONDS = 30.0
# Nodes are looked at so often in one timeout, and once a second at most.
_CHECKS = 10


@dataclass(kw_only=True)
class LocalRun:
    """`restarts` are the failed nodes that are replaced, as `backoffLimit` of a Job. `heartbeat_timeout_seconds`: 0 for
    never.
    """

    variables: Variables
    words: Sequence[str]
    restarts: int = 6
    heartbeat_timeout_seconds: float = HEARTBEAT_TIMEOUT_SECONDS
    node_command: Sequence[str] = _NODE_COMMAND
    clock: Callable[[], float] = time.monotonic
    _members: dict[int, Member] = field(default_factory=dict)
    _processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    _failed: list[Member] = field(default_factory=list)

    def run(self, config: str) -> int:
        """Runs the configuration. Raises `UserError` for what each node would report, and if the job runs already."""
        check_port_range(self.variables)
        check_folders(self.variables, config)
        check_output(self.variables, config)
        with (
            _exclusive(self.variables.job_folder),
            tempfile.TemporaryDirectory(prefix="paddle-run-", ignore_cleanup_errors=True) as folder,
        ):
            file = Path(folder) / "members.json"
            try:
                for number in range(self.variables.gradient_num):
                    self._start(number, file, generation=0)
                return self._watch(file)
            finally:
                self._stop()

    def _start(self, number: int, file: Path, *, generation: int) -> None:
        member = Member(
            uid=f"{os.getpid()}-{number}-{generation}",
            name=f"{self.variables.job_name}-{number}",
            address=f"127.0.0.{number + 1}",
            phase=Phase.RUNNING,
        )
        self._members[number] = member
        self._write(file)
        variables = self.variables
        environment = {
            **os.environ,
            "JOB_NAME": variables.job_name,
            "JOB_PATH": str(variables.job_path),
            "TRAIN_CONFIG_DIR": variables.config_dir,
            "CONF_PADDLE_NIC": variables.nic,
            "CONF_PADDLE_PORT": str(variables.port),
            "CONF_PADDLE_PORTS_NUM": str(variables.ports_num),
            "CONF_PADDLE_PORTS_NUM_SPARSE": str(variables.ports_num_sparse),
            "CONF_PADDLE_GRADIENT_NUM": str(variables.gradient_num),
            # A node that is killed cannot remove what it has copied.
            "TMPDIR": str(file.parent),
            MEMBERS_FILE: str(file),
            OWN_UID: member.uid,
        }
        command = [*self.node_command, *self.words]
        # Node 0 shows its trainer's log; the others' are in their files.
        shown = None if number == 0 else subprocess.DEVNULL
        self._processes[number] = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=shown,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )

    def _write(self, file: Path) -> None:
        write_members(file, [*self._failed, *self._members.values()])

    def _watch(self, file: Path) -> int:
        generation = 0
        monitor = HeartbeatMonitor(timeout_seconds=self.heartbeat_timeout_seconds)
        check_at = self.clock()
        while any(member.phase is Phase.RUNNING for member in self._members.values()):
            for number, process in list(self._processes.items()):
                code = process.poll()
                if code is None or self._members[number].phase is not Phase.RUNNING:
                    continue
                monitor.forget(number)
                phase = Phase.SUCCEEDED if code == 0 else Phase.FAILED
                self._members[number] = dataclasses.replace(self._members[number], phase=phase)
                self._write(file)
                if code == 0:
                    continue
                code = 128 - code if code < 0 else code
                if code == ExitCode.BAD_INPUT or generation >= self.restarts:
                    log.error("Node %d failed with exit code %d; stopping the run", number, code)
                    train_log = self._train_log(number)
                    # That of node 0 is on the screen already.
                    if number != 0 and (shown := tail(train_log, _SHOWN_LINES)):
                        log.error("The end of %s:\n%s", train_log, shown)
                    return code
                generation += 1
                log.warning(
                    "Restarting node %d: exit code %d (%d of %d); its log is %s",
                    number,
                    code,
                    generation,
                    self.restarts,
                    self._train_log(number),
                )
                self._failed.append(self._members[number])
                self._start(number, file, generation=generation)
            if self.clock() >= check_at:
                self._kill_unresponsive(monitor, file)
                check_at = self.clock() + min(1.0, self.heartbeat_timeout_seconds / _CHECKS)
            time.sleep(_POLL_SECONDS)
        return 0

    def _kill_unresponsive(self, monitor: HeartbeatMonitor, file: Path) -> None:
        """Its end is observed as that of any other node."""
        if not self.heartbeat_timeout_seconds:
            return
        table = process_table()
        seen = {
            number: Observation(
                beat=read_beat(beat_file(file, self._members[number].uid)),
                stopped=stopped_descendant(table, process.pid),
            )
            for number, process in self._processes.items()
            if process.poll() is None
        }
        for node in monitor.check(seen, self.clock()):
            log.warning(
                "Killing node %d: unresponsive for %.0f s (%s)", node.number, node.seconds, node.reason
            )
            # Its trainer and its servers die with it.
            os.killpg(self._processes[node.number].pid, signal.SIGKILL)

    def _train_log(self, number: int) -> Path:
        """Folders have the numbers of trainers, which are ranks of the addresses as text."""
        addresses = sorted(member.address for member in self._members.values())
        folder = f"node_{addresses.index(self._members[number].address)}"
        return self.variables.output / folder / "train.log"

    def _stop(self) -> None:
        """Nodes remove what they have copied when they are terminated; their processes die with them."""
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + _LEAVE_SECONDS
        for process in self._processes.values():
            try:
                process.wait(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[None]:
    """Locks the folder of a job while it runs. Raises `UserError` if another run has it."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(
                f"The job in {folder} is running already.",
                hint="Stop that run first, or choose another --job_name.",
            ) from error
        except OSError as error:
            # Some network file systems have no locks.
            log.warning("Locking %s failed: %s", folder, error.strerror)
        yield
    finally:
        os.close(opened)
