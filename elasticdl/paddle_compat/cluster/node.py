"""A node of a job: waits for the others, starts its parameter servers and its trainer, and watches over them.

An attempt is one quorum of members. When a member is lost the others kill their processes, wait until it has been
replaced, and continue from the newest complete pass; their pods stay. Before each attempt the nodes meet at a barrier
on the shared volume, so that no trainer reaches a parameter server of the attempt before.

Failure modes
    the own trainer or server fails    the node exits with its exit code; the Job replaces the pod
    another node fails                 restart in place, from the newest complete pass
    all passes are complete            exit code 0, at once, also in a second run
    the API server does not answer     training goes on
    the volume is not writable         exit code 2, with the file and the user
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from elasticdl.errors import ExitCode, UserError
from elasticdl.paddle_compat.cluster.arguments import TRAIN, Arguments, parse
from elasticdl.paddle_compat.cluster.heartbeats import beat_file, start_beating
from elasticdl.paddle_compat.cluster.membership import (
    FileMembership,
    Membership,
    MembershipUnavailable,
    Quorum,
    find_loss,
    find_quorum,
)
from elasticdl.paddle_compat.cluster.network import check_ports, interface_address, interfaces
from elasticdl.paddle_compat.cluster.passes import newest_pass
from elasticdl.paddle_compat.cluster.variables import Variables, read_variables
from elasticdl.platforms.local.process_tree import die_with_parent

if TYPE_CHECKING:
    from elasticdl.paddle_compat.cluster.pods import JobPods

log = logging.getLogger("elasticdl.paddle")

COMMENT = "paddle_process_by_paddle"
# A file beside the passes: the configuration that has saved them.
_CONFIGURATION = ".configuration"
# Variables by which `elasticdl paddle run` describes a node that is a process.
MEMBERS_FILE, OWN_UID = "ELASTICDL_PADDLE_MEMBERS", "ELASTICDL_PADDLE_UID"
# The volume does not let this user read or write.
DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
# A file has the name of a folder, or the other way round.
_MISPLACED = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR)


@dataclass(frozen=True, kw_only=True)
class Intervals:
    """The polling interval of a node, and its timeouts."""

    poll_seconds: float = 0.1
    members_seconds: float = 1.0
    # Another node's failure may be the reason of ours: its pod shows it some seconds later.
    collateral_seconds: float = 15.0
    exit_seconds: float = 20.0
    # A trainer whose servers have failed does not end by itself.
    crash_seconds: float = 2.0
    # Servers of the attempt before, killed just now, hold their ports until the kernel has freed their memory.
    ports_seconds: float = 10.0


class MemberLost(Exception):
    """A member of the attempt is gone."""


@dataclass(kw_only=True)
class Node:
    """See the module's docstring."""

    variables: Variables
    arguments: Arguments
    membership: Membership
    intervals: Intervals = field(default_factory=Intervals)
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def run(self) -> int:
        """Returns the exit code of the node."""
        check_folders(self.variables, self.arguments.text("config"))
        claim_output(self.variables, self.arguments.text("config"))
        while not self._is_complete():
            quorum = self._wait_for_members()
            try:
                return self._attempt(quorum)
            except MemberLost as loss:
                log.warning("Restarting from the newest complete pass: %s", loss)
        log.info(
            "All %d passes are complete in %s", self.arguments.number("num_passes"), self.variables.output
        )
        return 0

    def _is_complete(self) -> bool:
        newest = newest_pass(self.variables.output)
        return newest is not None and newest + 1 >= self.arguments.number("num_passes")

    # -- members --

    def _wait_for_members(self) -> Quorum:
        waiting = ""
        while True:
            with contextlib.suppress(MembershipUnavailable):
                members = self.membership.members()
                quorum = find_quorum(members, wanted=self.variables.gradient_num)
                if quorum is not None and any(each.uid == self.membership.own_uid for each in quorum.members):
                    return quorum
                seen = ", ".join(sorted(f"{each.name} {each.phase.value}" for each in members))
                if seen != waiting:
                    log.info("Waiting for %d running nodes: %s", self.variables.gradient_num, seen)
                    waiting = seen
            if self._is_complete():
                raise SystemExit(0)
            self.sleep(self.intervals.members_seconds)

    def _check_members(self, quorum: Quorum) -> None:
        with contextlib.suppress(MembershipUnavailable):
            if loss := find_loss(quorum, self.membership.members()):
                raise MemberLost(loss)

    def _meet(self, quorum: Quorum, number: int, mark: str) -> None:
        """A barrier of the nodes of an attempt: before it, and when the trainer is done, whose servers others need."""
        marks = [self.variables.output / f"node_{other}" / mark for other in range(len(quorum.members))]
        part = marks[number].with_suffix(".part")
        part.write_text(quorum.attempt)
        part.rename(marks[number])
        while True:
            with contextlib.suppress(FileNotFoundError):
                if all(mark.read_text() == quorum.attempt for mark in marks):
                    return
            self._check_members(quorum)
            self.sleep(self.intervals.members_seconds / 2)

    # -- one attempt --

    def _attempt(self, quorum: Quorum) -> int:
        number = quorum.number_of(self.membership.own_uid)
        address = quorum.addresses[number]
        folder = self.variables.output / f"node_{number}"
        folder.mkdir(parents=True, exist_ok=True)
        check_interface(self.variables.nic, address)
        self._wait_for_ports(address)
        with tempfile.TemporaryDirectory(prefix="paddle-node-", ignore_cleanup_errors=True) as work:
            self._copy_inputs(Path(work), number)
            self._meet(quorum, number, "started")
            server_words = self._server_words(quorum, address)
            train_words = self._train_words(quorum, number)
            log.info("Starting node %d of %d: attempt %s", number, len(quorum.members), quorum.attempt)
            with (
                _process(server_words, work, folder / "server.log", quorum.attempt) as server,
                _process(train_words, work, folder / "train.log", quorum.attempt, shown=True) as trainer,
            ):
                code = self._watch(quorum, server, trainer, folder)
                if code == 0:
                    self._meet(quorum, number, "finished")
                return code

    def _wait_for_ports(self, address: str) -> None:
        deadline = self.clock() + self.intervals.ports_seconds
        while True:
            try:
                return check_ports(address, self.variables.ports)
            except UserError:
                if self.clock() >= deadline:
                    raise
            self.sleep(self.intervals.poll_seconds)

    def _watch(
        self, quorum: Quorum, server: subprocess.Popen[bytes], trainer: subprocess.Popen[bytes], folder: Path
    ) -> int:
        looked = self.clock()
        while True:
            code = trainer.poll()
            if code == 0:
                return 0
            if code is None and (ended := server.poll()) is not None:
                # A server ends before the trainer does when trainer 0 has stopped all of them.
                intervals = self.intervals
                self._wait_for_exit(trainer, intervals.crash_seconds if ended else intervals.exit_seconds)
                if trainer.poll() == 0:
                    return 0
                code = ended or trainer.poll() or ExitCode.JOB_FAILED
                log.error(
                    "The parameter servers exited with code %d:\n%s", ended, tail(folder / "server.log")
                )
            if code is not None:
                return self._blame(quorum, code)
            if self.clock() - looked >= self.intervals.members_seconds:
                self._check_members(quorum)
                looked = self.clock()
            self.sleep(self.intervals.poll_seconds)

    def _blame(self, quorum: Quorum, code: int) -> int:
        """The exit code, unless it was the loss of another node that ended ours."""
        code = 128 - code if code < 0 else code
        # No other node kills our processes.
        if code not in (ExitCode.BAD_INPUT, 128 + signal.SIGKILL):
            deadline = self.clock() + self.intervals.collateral_seconds
            while self.clock() < deadline:
                self._check_members(quorum)
                self.sleep(self.intervals.members_seconds)
        log.error("Training failed with exit code %d", code)
        return code

    def _wait_for_exit(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        deadline = self.clock() + seconds
        while process.poll() is None and self.clock() < deadline:
            self.sleep(self.intervals.poll_seconds)

    def _copy_inputs(self, work: Path, number: int) -> None:
        folders = {self.variables.config_folder: work, self.variables.data_folder(number): work / "data"}
        for source, target in folders.items():
            try:
                shutil.copytree(source, target, dirs_exist_ok=True)
            except shutil.Error as error:
                path, _, reason = error.args[0][0]
                raise UserError(
                    f"{path} cannot be copied to {target}: {reason}",
                    hint="The node must be able to read the file, and have room for it in its temporary folder.",
                ) from error

    # -- command lines --

    def _shared_words(self, quorum: Quorum) -> list[str]:
        variables = self.variables
        return [
            f"--nics={variables.nic}",
            f"--port={variables.port}",
            f"--ports_num={variables.ports_num}",
            f"--comment={COMMENT}",
            f"--pservers={','.join(quorum.addresses)}",
            f"--ports_num_for_sparse={variables.ports_num_sparse}",
            f"--num_gradient_servers={variables.gradient_num}",
        ]

    def _server_words(self, quorum: Quorum, address: str) -> list[str]:
        kept = ("config", "config_args", "use_gpu")
        more = [f"--{name}={self.arguments.text(name)}" for name in kept if name in self.arguments.given]
        return ["pserver", *self._shared_words(quorum), *more, f"--address={address}"]

    def _train_words(self, quorum: Quorum, number: int) -> list[str]:
        replaced = {
            *(word[2:].partition("=")[0] for word in self._shared_words(quorum)),
            "trainer_id",
            "save_dir",
            *self._outdated_starts(),
        }
        given = [f"--{name}={value}" for name, value in self.arguments.given.items() if name not in replaced]
        return [
            "train",
            *self._shared_words(quorum),
            *given,
            f"--trainer_id={number}",
            f"--save_dir={self.variables.output}",
        ]

    def _outdated_starts(self) -> tuple[str, ...]:
        """The flags that say where the first attempt starts: a later one continues."""
        newest = newest_pass(self.variables.output)
        later = newest is not None and newest >= self.arguments.number("start_pass")
        return ("init_model_path", "start_pass") if later else ()


def check_folders(variables: Variables, config: str) -> None:
    """Raises `UserError` if there is no configuration, or no data for a node."""
    job = variables.job_folder
    if not job.is_dir():
        raise UserError(
            f"There is no folder {job} (JOB_PATH/JOB_NAME).",
            hint="Run the data job first, or mount the volume with the data at JOB_PATH.",
        )
    if not variables.config_folder.is_dir():
        there = sorted(each.name for each in job.iterdir() if each.is_dir() and not each.name.isdigit())
        raise UserError(
            f"There is no folder {variables.config_folder} (TRAIN_CONFIG_DIR). {job} has {', '.join(there)}."
        )
    if not (variables.config_folder / config).is_file():
        there = sorted(each.name for each in variables.config_folder.glob("*.py"))
        raise UserError(
            f"There is no configuration {config} in {variables.config_folder}: it has {', '.join(there)}.",
            hint="Name it with --config, or PADDLE_TRAIN_CONFIG in the Job.",
        )
    for number in range(variables.gradient_num):
        if not variables.data_folder(number).is_dir():
            raise UserError(
                f"There is no data folder {variables.data_folder(number)} for node {number} of "
                f"{variables.gradient_num}.",
                hint=f"Run the data job with SPLIT_COUNT={variables.gradient_num}.",
            )
    if (left := variables.data_folder(variables.gradient_num)).is_dir():
        raise UserError(
            f"No node would train {left}: CONF_PADDLE_GRADIENT_NUM is {variables.gradient_num}, and the data is "
            "split for more nodes.",
            hint="Set it, parallelism and completions (or --nodes) to the SPLIT_COUNT of the data job.",
        )


def claim_output(variables: Variables, config: str) -> None:
    """Notes whose passes `output` has, before the first one."""
    check_output(variables, config)
    if newest_pass(variables.output) is None:
        variables.output.mkdir(parents=True, exist_ok=True)
        part = variables.output / f"{_CONFIGURATION}-{uuid.uuid4().hex}.part"
        part.write_text(f"{_note(variables, config)}\n")
        part.rename(variables.output / _CONFIGURATION)


def check_output(variables: Variables, config: str) -> None:
    """Raises `UserError` for passes of another configuration.

    A job whose passes seem to be complete would succeed without training.
    """
    newest = newest_pass(variables.output)
    if newest is None:
        return
    own = _note(variables, config)
    with contextlib.suppress(FileNotFoundError):
        if (other := (variables.output / _CONFIGURATION).read_text().strip()) != own:
            raise UserError(
                f"{variables.output} has {newest + 1} passes of the configuration {other}, and this job's is {own}.",
                hint="Move the passes away, or use another JOB_NAME (--job_name).",
            )


def _note(variables: Variables, config: str) -> str:
    return os.path.normpath(f"{variables.config_dir}/{config}")


@contextlib.contextmanager
def _process(
    words: Sequence[str], work: str, log_file: Path, attempt: str, *, shown: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A `paddle` command whose output is appended to a log, and killed with all that it started."""
    command = [sys.executable, "-u", "-m", "elasticdl.paddle_compat.command", *words]
    with log_file.open("ab") as sink:
        header = f"===== attempt {attempt} at {time.strftime('%Y-%m-%d %H:%M:%S')}\n"
        header += f"commandline: paddle {shlex.join(words)}\n"
        sink.write(header.encode())
        sink.flush()
        process = subprocess.Popen(
            command,
            cwd=work,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, (_package_root(), os.environ.get("PYTHONPATH")))),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if shown else sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=partial(die_with_parent, os.getpid()),
        )
        copier = None
        if shown:
            assert process.stdout is not None
            copier = threading.Thread(target=_copy_output, args=(process.stdout, sink), daemon=True)
            copier.start()
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if copier is not None:
                copier.join(timeout=5)


def _copy_output(source: BinaryIO, sink: BinaryIO) -> None:
    """To the log and to our own output, which `kubectl logs` shows. A full volume must not block the trainer."""
    full = False
    for line in iter(source.readline, b""):
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        try:
            if not full:
                sink.write(line)
                sink.flush()
        except OSError as error:
            full = True
            log.error("Writing the log stopped: %s", error.strerror)


def _package_root() -> str:
    return str(Path(__file__).resolve().parents[3])


def let_forks_die() -> None:
    """Makes each process that the main thread forks die with this one.

    While Paddle's nodes meet over gloo they have a manager and an HTTP server as children. If their parent is killed
    these would stay, and keep the port of the next attempt.
    """
    parent = 0

    def before() -> None:
        nonlocal parent
        # The kernel's signal comes when the thread ends that has forked.
        parent = os.getpid() if threading.current_thread() is threading.main_thread() else 0

    def in_child() -> None:
        if parent:
            die_with_parent(parent)

    os.register_at_fork(before=before, after_in_child=in_child)


def check_interface(name: str, address: str) -> None:
    """Warns about an interface that is missing or has another address; the node's address is used then."""
    try:
        found = interface_address(name)
    except LookupError:
        log.warning(
            "CONF_PADDLE_NIC=%s: there is no such network interface with an address, only %s; using %s",
            name,
            ", ".join(interfaces()),
            address,
        )
        return
    if found != address and not address.startswith("127."):
        log.warning("CONF_PADDLE_NIC=%s has the address %s; using %s", name, found, address)


def tail(path: Path, lines: int = 15) -> str:
    with contextlib.suppress(OSError):
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    return ""


def main(words: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Runs the node that the variables of the guide describe, for `start_paddle.py`."""
    logging.basicConfig(level=logging.INFO, format="[%(levelname)s %(asctime)s %(name)s] %(message)s")
    given = os.environ if environment is None else environment
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    if members := given.get(MEMBERS_FILE):
        start_beating(beat_file(Path(members), given[OWN_UID]))
    try:
        variables = read_variables(given)
        arguments = parse(list(sys.argv[1:] if words is None else words), TRAIN, command="start_paddle.py")
        return Node(
            variables=variables, arguments=arguments, membership=_find_membership(variables, given)
        ).run()
    except UserError as error:
        log.error("%s", error.message)
        if error.hint:
            log.error("hint: %s", error.hint)
        return ExitCode.BAD_INPUT
    except OSError as error:
        if error.errno in DENIED:
            log.error(
                "%s: %s. This node (user %d) must be able to read and write the volume at JOB_PATH.",
                error.filename,
                error.strerror,
                os.getuid(),
            )
            return ExitCode.BAD_INPUT
        if error.errno in _MISPLACED:
            log.error("%s: %s. Move it away: the node needs a folder there.", error.filename, error.strerror)
            return ExitCode.BAD_INPUT
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        log.error(
            "There is no space left on the volume (%s). Free some and start the job again.", error.filename
        )
        return ExitCode.JOB_FAILED


def _find_membership(variables: Variables, environment: Mapping[str, str]) -> Membership:
    if file := environment.get(MEMBERS_FILE):
        return FileMembership(file=Path(file), own_uid=environment[OWN_UID])
    pods = _find_pods(variables)
    parallelism = pods.parallelism()
    if parallelism is not None and parallelism != variables.gradient_num:
        raise UserError(
            f"CONF_PADDLE_GRADIENT_NUM is {variables.gradient_num}, but the Job's parallelism is {parallelism}.",
            hint="Set both, and completions, to the same number.",
        )
    return pods


def _find_pods(variables: Variables) -> JobPods:
    """Waits until the API server answers."""
    from elasticdl.paddle_compat.cluster.pods import JobPods

    while True:
        try:
            return JobPods.from_inside(job_name=variables.job_name, namespace=variables.namespace)
        except MembershipUnavailable as error:
            log.warning("Waiting for the API server: %s", error)
            time.sleep(Intervals.members_seconds)


if __name__ == "__main__":
    sys.exit(main())
