"""Runs a job on this machine, inside the calling process.

The process becomes the job's host: it starts the master and restarts it whenever it is killed, passes its status on to
an observer, and records how the job ended. `run` blocks until then; `start` does the same in a thread. Blocking code
rather than an event loop, because notebooks call it from inside a loop of their own.

Failure modes
    The first `interrupt` (Ctrl-C) asks the master to save a checkpoint and stop, the second one kills all nodes. When
    the terminal is closed, the job saves a checkpoint and stops, too, and the observer prints nowhere from then on.
    However this process ends, no process of the job survives it (`elasticdl.platforms.local.host`). A master that
    crashes by itself is restarted a limited number of times, one that is killed without limit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from elasticdl.catalog.local.free_cores import free_cores, with_free_cores
from elasticdl.catalog.local.job import resume_hint
from elasticdl.catalog.local.master_client import (
    MasterAway,
    MasterClient,
    last_status,
    read_status,
    tls_environment,
)
from elasticdl.catalog.local.preflight import check_job, reserve_port
from elasticdl.catalog.local.signals import hang_ups, leave_terminal, stop_signals
from elasticdl.catalog.local.terminal_observer import TerminalObserver
from elasticdl.catalog.observer import JobObserver
from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder, RecordedState, write_atomically
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus, RunState
from elasticdl.platforms.local.host import Host
from elasticdl.platforms.platform import (
    EXIT_DEFINITION_ERROR,
    MASTER_ROLE,
    EndReason,
    NodePhase,
    NodeRequest,
    NodeStatus,
)

# A master that crashes by itself this often will do so forever.
_MAX_MASTER_CRASHES = 5
# How often the observer gets a status. The master computes one in well under a millisecond.
_POLL_SECONDS = 0.25
_STATUS_TIMEOUT_SECONDS = 1.0
_STOP_GRACE_SECONDS = 3.0
# Lines shown of the output of a failed program; all of it is in its log.
_OUTPUT_LINES = 15
_MASTER_LINES = 20


class LocalRunner:
    """A job that this process hosts. Created by `create`, used once."""

    def __init__(self, spec: JobSpec, folder: JobFolder, observer: JobObserver) -> None:
        self.folder = folder
        self._spec = spec
        self._observer = TerminalObserver(observer)
        self._interrupts = 0
        self._stop_reason = ""
        self._stop_sent = False
        # Not an event: its lock may be held by the very code that a signal interrupts.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._crashes = 0
        self._reported_failures: set[str] = set()
        self.done: Future[JobStatus] = Future()

    @classmethod
    def create(
        cls,
        spec: JobSpec,
        *,
        store: JobStore,
        observer: JobObserver,
        cores: Callable[[], int] = free_cores,
    ) -> LocalRunner:
        """Checks and sizes the job and creates its folder, whose lock this process holds from now on."""
        check_job(spec)
        sized = with_free_cores(spec, cores())
        return cls(sized, store.create(sized), observer)

    @classmethod
    def resume(cls, name: str, *, store: JobStore, observer: JobObserver) -> LocalRunner:
        """Begins another attempt of a job that has ended without success, in its folder, whose lock this process holds
        from now on. To be called in the directory where the job was started.
        """
        folder = store.get(name)
        store.check_resumable(folder)
        spec = folder.spec()
        check_job(spec)
        return cls(spec, store.reopen(name), observer)

    def run(self) -> JobStatus:
        """Runs the job to its end and returns its last status. Raises `UserError` if it cannot be started."""
        try:
            with (
                reserve_port(self._spec.cluster.master_port) as own,
                reserve_port(0) as public,
                Host(self.folder.socket_path(), self.folder.logs_path, os.environ) as host,
            ):
                self._run(host, ports=(own.number, public.number))
        except UserError as error:
            self.folder.finish("failed", message=str(error), now=time.time())
            raise
        finally:
            self.folder.release()
        return last_status(self.folder)

    def start(self) -> None:
        """Runs the job in a thread; `done` has the result. The interpreter does not exit before the job is over."""

        def run() -> None:
            try:
                status = self.run()
            except BaseException as error:  # noqa: BLE001 - raised by the caller that waits
                self.done.set_exception(error)
            else:
                self.done.set_result(status)

        self.done.set_running_or_notify_cancel()
        threading.Thread(target=run, name=f"elasticdl-job-{self.folder.name}").start()

    def interrupt(self, reason: str = "Ctrl-C") -> None:
        """Stops the job after a checkpoint; called again, kills it. Safe in a signal handler."""
        self._interrupts += 1
        if self._interrupts == 1:
            self._stop_reason = reason
            what = "Stopping." if self._spec.program == "command" else "Saving a checkpoint and stopping."
            self._observer.note(f"{what} Ctrl-C again kills at once.")
        self._wake.put(None)

    def hang_up(self) -> None:
        """Stops the job after a checkpoint: its terminal was closed. Kills nothing, however often it is called."""
        leave_terminal()
        if not self._interrupts:
            self.interrupt("the terminal was closed")

    def _run(self, host: Host, *, ports: tuple[int, int]) -> None:
        with hang_ups(self.hang_up):
            self._run_to_end(host, ports)

    def _run_to_end(self, host: Host, ports: tuple[int, int]) -> None:
        self._observer.started(self._spec, f"logs and record in {self.folder.path}")
        if self._spec.cluster.volume:
            self._observer.note(
                "--volume: nothing is mounted here; the paths of the job are those of this machine."
            )
        self._start_master(host, ports, again=False)
        with stop_signals(self.interrupt):
            master = self._watch(host, ports)
        host.stop_all(_STOP_GRACE_SECONDS)
        self._record(master, host)

    # -- the master ------------------------------------------------------------------------------------------

    def _start_master(self, host: Host, ports: tuple[int, int], *, again: bool) -> None:
        request = NodeRequest(
            name=MASTER_ROLE,
            role=MASTER_ROLE,
            command=(sys.executable, "-m", "elasticdl.master"),
            environment={
                "ELASTICDL_JOB_DIR": str(self.folder.path),
                "ELASTICDL_HOST_SOCKET": str(self.folder.socket_path()),
                "ELASTICDL_MASTER_PORT": str(ports[0]),
                "ELASTICDL_PUBLIC_PORT": str(ports[1]),
                "ELASTICDL_ATTEMPT": str(self.folder.record().attempts),
                **tls_environment(self.folder),
            },
        )
        host.spawn(request, again=again)

    def _watch(self, host: Host, ports: tuple[int, int]) -> NodeStatus:
        """Returns how the master's process ended, once it is not restarted any more."""
        client: MasterClient | None = None
        while True:
            master = next(status for status in host.statuses() if status.name == MASTER_ROLE)
            # Before the end is looked at: a failure that ends the job is reported too.
            if self._spec.program == "command":
                self._report_failures(host)
            if master.phase in (NodePhase.SUCCEEDED, NodePhase.FAILED):
                if client is not None:
                    client.close()
                    client = None
                if not self._is_restartable(master):
                    return master
                ended = (
                    "was killed" if master.reason is EndReason.KILLED else f"ended ({master.reason.value})"
                )
                self._observer.note(f"The master {ended}; it is started again and goes on from its journal.")
                self._start_master(host, ports, again=True)
            if self._interrupts > 1:
                host.kill_all()
                continue
            if client is None and self.folder.master_address() is not None:
                client = MasterClient(self.folder)
            if client is not None:
                self._poll(client)
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=_POLL_SECONDS)

    def _report_failures(self, host: Host) -> None:
        """Passes on the last output of programs that failed: it is what their owner needs to see first."""
        for node in host.statuses():
            if node.name in self._reported_failures or node.reason not in (
                EndReason.ERROR,
                EndReason.OUT_OF_MEMORY,
            ):
                continue
            self._reported_failures.add(node.name)
            if node.name == MASTER_ROLE:
                continue
            lines = [f"{node.name} | {line}" for line in host.tail(node.name, _OUTPUT_LINES)]
            ended = (
                "ran out of memory"
                if node.reason is EndReason.OUT_OF_MEMORY
                else f"ended with {node.exit_code}"
            )
            output = f" The last it said:\n{chr(10).join(lines)}" if lines else " It said nothing."
            self._observer.note(f"{node.name} {ended}.{output}")

    def _is_restartable(self, master: NodeStatus) -> bool:
        if self._interrupts > 1 or self.folder.status_path.exists():
            return False
        if master.reason in (EndReason.KILLED, EndReason.OUT_OF_MEMORY):
            return True
        if master.exit_code == EXIT_DEFINITION_ERROR:
            return False
        self._crashes += 1
        return self._crashes < _MAX_MASTER_CRASHES

    def _poll(self, client: MasterClient) -> None:
        try:
            if self._interrupts and not self._stop_sent:
                client.stop(self._stop_reason)
                self._stop_sent = True
            self._observer.progressed(client.status(timeout_seconds=_STATUS_TIMEOUT_SECONDS, brief=True))
        except MasterAway:
            return

    # -- the end ---------------------------------------------------------------------------------------------

    def _record(self, master: NodeStatus, host: Host) -> None:
        """Writes down how the job ended, and reports it."""
        status = self._final_status(master, host)
        states: dict[RunState, RecordedState] = {
            RunState.SUCCEEDED: "succeeded",
            RunState.STOPPED: "stopped",
        }
        state, message = states.get(status.state, "failed"), status.message
        if state == "succeeded" and status.audit is not None and not status.audit.exact:
            state, message = "failed", f"The audit is not exact: {status.audit.reason}."
        try:
            self.folder.finish(state, message=message, now=time.time())
        finally:
            # A full disk is the reason for both: a job that failed, and a record that does not say so.
            final = dataclasses.replace(status, state=RunState(state), message=message)
            self._observer.ended(final, str(self.folder.logs_path))
            if state != "succeeded":
                self._observer.note(resume_hint(self.folder.name))

    def _final_status(self, master: NodeStatus, host: Host) -> JobStatus:
        with contextlib.suppress(UserError):
            if (status := read_status(self.folder)) is not None:
                return dataclasses.replace(status, job=self.folder.name)
        status = JobStatus(
            job=self.folder.name,
            kind=self._spec.kind,
            state=RunState.STOPPED if self._interrupts else RunState.FAILED,
            message="Killed by a second Ctrl-C." if self._interrupts else self._last_output(master, host),
        )
        with contextlib.suppress(OSError):
            write_atomically(self.folder.status_path, status.to_text())
        return status

    def _last_output(self, master: NodeStatus, host: Host) -> str:
        lines = host.tail(MASTER_ROLE, _MASTER_LINES)
        if master.exit_code == EXIT_DEFINITION_ERROR:
            return reason_given_up(lines, master.message)
        text = "\n".join(lines)
        return f"The master ended with exit code {master.exit_code} ({master.reason.value}).\n{text}"


def reason_given_up(lines: list[str], message: str) -> str:
    """Why the master gave up, if it could not write that into the job's folder: from its log.

    A full disk may have taken the log, too. The keeper's `message` has the last line, from memory.
    """
    reasons = [line.partition(" ERROR elasticdl.master: ")[2] for line in lines]
    return "\n".join(filter(None, reasons)) or f"The master could not go on: {message}"
