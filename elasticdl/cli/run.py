"""Running a job on this machine: `elasticdl train`, `evaluate`, `predict`, and the same from Python.

This process becomes the job's host. It starts the master and starts it again whenever it is killed, shows
what the master says of the job, and ends when the job does. Ctrl-C asks the master to save and stop; a
second one kills. Whatever happens to this process, nothing of the job is left running: see
`elasticdl.platforms.local.host`.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from elasticdl.cli.control import MasterAway, MasterControl, last_status
from elasticdl.cli.output.display import EXIT_INTERRUPTED, Display, make_display
from elasticdl.errors import UserError
from elasticdl.jobs.definition_check import check_definition
from elasticdl.jobs.job_folder import JobFolder, RecordedState, write_atomically
from elasticdl.jobs.job_store import JobStore, new_suffix
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.programs.program_nodes import search_path
from elasticdl.master.programs.shell_command import command_line, of_shell
from elasticdl.platforms.local.host import Host
from elasticdl.platforms.platform import EXIT_DEFINITION_ERROR, EndReason, NodePhase, NodeRequest, NodeStatus
from elasticdl.wire.reserved_ports import KeptPort

MASTER = "master"
# A master that is killed is started again without limit. One that crashes by itself so often will do so for
# ever.
_MASTER_CRASHES = 5
# How often the display is refreshed. The master computes a status in well under a millisecond.
_POLL_SECONDS = 0.25
# What is shown of the output of a program that failed; all of it is in its log.
_LAST_LINES = 15


@dataclass(frozen=True, kw_only=True)
class JobResult:
    """How a job ended. `status` is the document that `elasticdl jobs status --json` prints."""

    job_name: str
    state: str
    message: str
    status: dict[str, Any] = field(repr=False)

    @property
    def succeeded(self) -> bool:
        return self.state == "succeeded"

    @property
    def metrics(self) -> dict[str, float]:
        """Of the last evaluation."""
        evaluations = self.status.get("evaluations") or []
        return dict(evaluations[-1]["metrics"]) if evaluations else {}

    @property
    def exit_code(self) -> int:
        return {"succeeded": 0, "stopped": EXIT_INTERRUPTED}.get(self.state, 1)


def run(kind: str = "train", *, quiet: bool = True, **flags: Any) -> JobResult:
    """Runs a job from a script or a notebook. The keyword arguments are the flags of `elasticdl train`.

    Raises `UserError` for whatever is wrong with the job before it starts; what happens to it afterwards is
    in the result.
    """
    spec = JobSpec.build(kind=kind, name_suffix=new_suffix(), **flags)
    display = make_display(quiet=quiet)
    if spec.runs_here:
        return execute(spec, display)
    from elasticdl.cli.submit import submit_and_wait

    status = submit_and_wait(spec, display)
    return JobResult(
        job_name=spec.job_name, state=status["state"], message=status.get("message", ""), status=status
    )


def run_job(spec: JobSpec) -> int:
    """Runs a job for the command line. Returns the exit code."""
    return execute(spec, make_display(quiet=False)).exit_code


def execute(spec: JobSpec, display: Display) -> JobResult:
    check(spec)
    folder = JobStore().create(spec)
    try:
        with (
            _keep_port(spec.cluster.master_port) as own,
            _keep_port(0) as public,
            Host(folder.socket_path(), folder.logs_path, os.environ) as host,
        ):
            job = _RunningJob(spec, folder, host, display, ports=(own.number, public.number))
            job.run()
    except UserError as error:
        folder.finish("failed", message=str(error), now=time.time())
        raise
    finally:
        display.close()
    status = last_status(folder)
    return JobResult(
        job_name=spec.job_name, state=status["state"], message=status.get("message", ""), status=status
    )


def check(spec: JobSpec) -> None:
    """Everything that can be found out before a process is started."""
    _keep_port(spec.cluster.master_port).close()
    if spec.program == "command":
        _check_command(spec.model.job_command)
        return
    check_definition(spec)
    if spec.checkpoint.checkpoint_dir_for_init:
        from elasticdl.ps.checkpoint.checkpoint_folders import find_checkpoint

        find_checkpoint(spec.checkpoint.checkpoint_dir_for_init)
    _check_data(spec)


def _check_command(command: str) -> None:
    """A command that needs no shell can be looked for before anything is started."""
    words = command_line(command)
    if of_shell(words):
        # Only reads it: a quote that does not close, a pipe to nowhere.
        read = subprocess.run([words[0], "-n", "-c", words[-1]], capture_output=True, text=True, check=False)
        if read.returncode:
            raise UserError(f"--job_command: the shell does not understand it: {read.stderr.strip()}")
        return
    if shutil.which(words[0], path=search_path()) is None:
        raise UserError(
            f"--job_command: there is no program {words[0]!r}.",
            hint="Give its path, or a program on your PATH.",
        )


def _keep_port(port: int) -> KeptPort:
    """One of the master's: its nodes find it there again whenever it was killed, so nobody else may get it meanwhile.
    0: any that is free.
    """
    try:
        return KeptPort(port)
    except OSError as error:
        if not port:
            raise UserError(
                f"The job's master cannot have a port of this machine: {error.strerror}.",
                hint="If all are in use (`ss -tan` lists them), end what uses them.",
            ) from None
        raise UserError(
            f"--master_port={port}: the port cannot be taken: {error.strerror}.",
            hint="Choose another one, or leave the flag away: any free one is then taken.",
        ) from None


def _check_data(spec: JobSpec) -> None:
    """Opens the data sets, which also leaves their indices ready for the workers."""
    from elasticdl.data.dataset import open_reader

    for flag in ("training_data", "validation_data", "prediction_data"):
        origin = getattr(spec.data, flag)
        if not origin or _has_own_reader(spec):
            continue
        try:
            size = len(open_reader(origin, spec.data.data_reader_params))
        except UserError as error:
            hint = error.hint or f"Give a file, a folder or a pattern of files with samples in --{flag}."
            raise UserError(f"--{flag}: {error.message}", hint=hint) from error
        if size == 0:
            raise UserError(f"--{flag}: {origin} has no samples.")


def _has_own_reader(spec: JobSpec) -> bool:
    """The definition may read data of its own kind: then only it can tell whether the data is there."""
    from elasticdl.jobs.definition_check import defined_names

    names = defined_names(spec)
    return names is None or spec.model.custom_data_reader in names


class _RunningJob:
    def __init__(
        self, spec: JobSpec, folder: JobFolder, host: Host, display: Display, *, ports: tuple[int, int]
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._host = host
        self._display = display
        self._ports = ports
        self._interrupts = 0
        self._stop_sent = False
        # Not an event: its lock may be held by the very code that a signal interrupts.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._crashes = 0
        self._told: set[str] = set()

    def run(self) -> None:
        self._display.begin(self._spec, f"logs and record in {self._folder.path}")
        if self._spec.cluster.volume:
            self._display.note(
                "--volume: nothing is mounted here; the paths of the job are those of this machine."
            )
        self._start_master(again=False)
        with self._signals():
            status = self._watch()
        self._host.stop_all(3.0)
        self._record(status)

    # -- the master ------------------------------------------------------------------------------------------

    def _start_master(self, *, again: bool) -> None:
        request = NodeRequest(
            name=MASTER,
            role=MASTER,
            command=(sys.executable, "-m", "elasticdl.master"),
            environment={
                "ELASTICDL_JOB_DIR": str(self._folder.path),
                "ELASTICDL_HOST_SOCKET": str(self._folder.socket_path()),
                "ELASTICDL_MASTER_PORT": str(self._ports[0]),
                "ELASTICDL_PUBLIC_PORT": str(self._ports[1]),
            },
        )
        self._host.spawn(request, again=again)

    def _watch(self) -> NodeStatus:
        """Until the master has said its last word. Returns how its process ended."""
        control: MasterControl | None = None
        while True:
            master = next(s for s in self._host.statuses() if s.name == MASTER)
            # Before the end is looked at: a failure that ends the job is to be told too.
            if self._spec.program == "command":
                self._tell_failures()
            if master.phase in (NodePhase.SUCCEEDED, NodePhase.FAILED):
                if control is not None:
                    control.__exit__(None, None, None)
                    control = None
                if not self._worth_another(master):
                    return master
                ended = (
                    "was killed" if master.reason is EndReason.KILLED else f"ended ({master.reason.value})"
                )
                self._display.note(f"The master {ended}; it is started again and goes on from its journal.")
                self._start_master(again=True)
            if self._interrupts > 1:
                self._host.kill_all()
                continue
            if control is None and self._folder.master_address() is not None:
                control = MasterControl(self._folder)
            if control is not None:
                self._look(control)
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=_POLL_SECONDS)

    def _tell_failures(self) -> None:
        """What a program said before it failed is what its owner needs to see first."""
        for node in self._host.statuses():
            if node.name in self._told or node.reason not in (EndReason.ERROR, EndReason.OUT_OF_MEMORY):
                continue
            self._told.add(node.name)
            if node.name == MASTER:
                continue
            lines = [f"{node.name} | {line}" for line in self._host.tail(node.name, _LAST_LINES)]
            ended = (
                "ran out of memory"
                if node.reason is EndReason.OUT_OF_MEMORY
                else f"ended with {node.exit_code}"
            )
            said = f" The last it said:\n{chr(10).join(lines)}" if lines else " It said nothing."
            self._display.note(f"{node.name} {ended}.{said}")

    def _worth_another(self, master: NodeStatus) -> bool:
        if self._interrupts > 1 or self._folder.status_path.exists():
            return False
        if master.reason in (EndReason.KILLED, EndReason.OUT_OF_MEMORY):
            return True
        if master.exit_code == EXIT_DEFINITION_ERROR:
            return False
        self._crashes += 1
        return self._crashes < _MASTER_CRASHES

    def _look(self, control: MasterControl) -> None:
        try:
            if self._interrupts and not self._stop_sent:
                control.stop("Ctrl-C")
                self._stop_sent = True
            self._display.show(control.status(seconds=1.0, brief=True))
        except MasterAway:
            return

    # -- Ctrl-C ----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            # A notebook or a test runs us in a thread, where signals cannot be taken.
            yield
            return
        caught = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            # Under nohup a job outlives its terminal.
            caught.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._interrupt) for number in caught}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _interrupt(self, number: int, frame: object) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            what = "Stopping." if self._spec.program == "command" else "Saving a checkpoint and stopping."
            self._display.note(f"{what} Ctrl-C again kills at once.")
        self._wake.put(None)

    # -- the end ---------------------------------------------------------------------------------------------

    def _record(self, master: NodeStatus) -> None:
        try:
            status = json.loads(self._folder.status_path.read_text())
        except (FileNotFoundError, ValueError):
            status = {"state": "stopped" if self._interrupts else "failed"}
            status["message"] = "Killed by a second Ctrl-C." if self._interrupts else self._last_words(master)
            with contextlib.suppress(OSError):
                write_atomically(self._folder.status_path, json.dumps(status))
        audit = status.get("audit")
        states: dict[str, RecordedState] = {"succeeded": "succeeded", "stopped": "stopped"}
        state = states.get(status["state"], "failed")
        message = str(status.get("message", ""))
        if state == "succeeded" and audit is not None and not audit["exact"]:
            state, message = "failed", f"The audit is not exact: {audit['reason']}."
        try:
            self._folder.finish(state, message=message, now=time.time())
        finally:
            # A disk that is full is the reason for both: a job that failed, and a record that says nothing of it.
            final = {"job": self._spec.job_name, **status, "state": state, "message": message}
            self._display.end(final, str(self._folder.logs_path))

    def _last_words(self, master: NodeStatus) -> str:
        lines = self._host.tail(MASTER, 20)
        if master.exit_code == EXIT_DEFINITION_ERROR:
            # It gave up in words of its own, but had no room to write them where they belong.
            said = [line.partition(" ERROR elasticdl.master: ")[2] for line in lines]
            return "\n".join(filter(None, said)) or "The master could not go on."
        text = "\n".join(lines)
        return f"The master ended with exit code {master.exit_code} ({master.reason.value}).\n{text}"
