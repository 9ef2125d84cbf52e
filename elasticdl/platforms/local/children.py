"""The nodes of a job as child processes of the keeper: forked, read, stopped, reaped, and cleaned up after.

Every node leads a session and process group of its own, so that a Ctrl-C typed at the terminal reaches only
the command that was typed there. A stop asks the node's own process alone (its helpers, say those that load
its data, are needed until it has finished); a kill takes the whole group. When a node has ended, the processes
that it leaves behind are killed before its end is reported.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elasticdl.platforms.exit_reason import MemoryKills, judge
from elasticdl.platforms.local import process_tree
from elasticdl.platforms.local.log_files import LogWriter, log_path
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus

# As much as a pipe holds by default; reading more at once would let one chatty node keep the others waiting.
_READ_BYTES = 64 * 1024

# A pipe cannot hold more without a special right, so this empties it, also if a survivor keeps on writing.
_DRAIN_BYTES = 1024 * 1024

_LONGEST_LAST_LINE = 300


@dataclass(kw_only=True)
class _Child:
    request: NodeRequest
    process: subprocess.Popen[bytes]
    output: int
    log: LogWriter
    stopped: bool = False
    kill_at: float = math.inf
    reported_trouble: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid


class Children:
    """`changed` hears every new status, with the process id; `opened`, `closed` say which pipes to read."""

    def __init__(
        self,
        *,
        log_folder: Path,
        log_bytes: int,
        changed: Callable[[NodeStatus, int | None], None],
        opened: Callable[[int, Callable[[], None]], None],
        closed: Callable[[int], None],
    ) -> None:
        self._log_folder = log_folder
        self._log_bytes = log_bytes
        self._changed = changed
        self._opened = opened
        self._closed = closed
        self._running: dict[str, _Child] = {}
        self._by_pid: dict[int, _Child] = {}
        self._ended_sessions: set[int] = set()
        self._statuses: dict[str, NodeStatus] = {}
        self._memory_kills = MemoryKills()

    def statuses(self) -> list[tuple[NodeStatus, int | None]]:
        return [
            (status, self._running[name].pid if name in self._running else None)
            for name, status in self._statuses.items()
        ]

    def recall(self, statuses: Iterable[NodeStatus]) -> None:
        for status in statuses:
            self._statuses.setdefault(status.name, status)

    def start(self, request: NodeRequest, *, again: bool) -> None:
        if request.name in self._running or (request.name in self._statuses and not again):
            return
        try:
            log = LogWriter(log_path(self._log_folder, request.name), limit=self._log_bytes)
        except OSError as error:
            self._cannot_start(request, f"its log {error.filename} cannot be written: {error.strerror}")
            return
        try:
            process, output = self._fork(request)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            message = _why_not(request, error)
            log.write(f"{message}\n".encode(errors="replace"))
            log.close()
            self._cannot_start(request, message)
            return
        child = _Child(request=request, process=process, output=output, log=log)
        self._running[request.name] = self._by_pid[process.pid] = child
        self._ended_sessions.discard(process.pid)
        self._opened(output, partial(self._read, child))
        self._report_status(child, NodePhase.RUNNING)

    def stop(self, name: str, *, grace_seconds: float, now: float) -> None:
        # A process that ended before this call was not stopped by it, even if it is not reaped yet.
        self.reap(now)
        child = self._running.get(name)
        if child is None:
            return
        child.stopped = True
        child.kill_at = min(child.kill_at, now + grace_seconds)
        if grace_seconds <= 0:
            process_tree.kill_group(child.pid)
        else:
            os.kill(child.pid, signal.SIGTERM)

    def tick(self, now: float) -> None:
        """Executes the actions that are due."""
        self._memory_kills.observe(now)
        for child in list(self._running.values()):
            if child.kill_at <= now:
                child.kill_at = math.inf
                process_tree.kill_group(child.pid)

    def next_due(self) -> float:
        return min((child.kill_at for child in self._running.values()), default=math.inf)

    def reap(self, now: float) -> bool:
        """Takes note of all that have ended; tells whether there are any children left."""
        while True:
            try:
                ended = self._wait_for_one()
            except ChildProcessError:
                return False
            if ended is None:
                break
            pid, wait_status = ended
            if pid in self._by_pid:
                self._end(self._by_pid[pid], os.waitstatus_to_exitcode(wait_status), now)
        self._kill_leftovers()
        return True

    def kill_everything(self, *, seconds: float, wait: Callable[[float], None]) -> None:
        """Ends all nodes and all they have started; returns when they are gone, or when the time is over."""
        deadline = time.monotonic() + seconds
        for child in self._running.values():
            child.stopped = True
        while self.reap(time.monotonic()) and time.monotonic() < deadline:
            for child in self._running.values():
                process_tree.kill_group(child.pid)
            # The children of those killed become ours, to be killed in the next round.
            for pid in process_tree.children():
                process_tree.kill(pid)
            wait(0.05)

    def _fork(self, request: NodeRequest) -> tuple[subprocess.Popen[bytes], int]:
        """The process, and the end of the pipe to read its output from."""
        mark = process_tree.mark(str(self._log_folder), request.name)
        output, child_output = os.pipe()
        try:
            process = subprocess.Popen(
                request.command,
                env={**os.environ, **request.environment, process_tree.MARK: mark},
                stdin=subprocess.DEVNULL,
                stdout=child_output,
                stderr=child_output,
                start_new_session=True,
                # Not safe where there are threads; the keeper has none.
                preexec_fn=partial(process_tree.die_with_parent, os.getpid()),
            )
        except BaseException:
            os.close(output)
            raise
        finally:
            os.close(child_output)
        os.set_blocking(output, False)
        return process, output

    def _wait_for_one(self) -> tuple[int, int] | None:
        """Returns a child that has ended, with its group killed; None if all run. ChildProcessError: there are none."""
        if sys.platform == "darwin":
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
            if pid in self._by_pid:
                process_tree.kill_group(pid)
            return (pid, wait_status) if pid else None
        info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if info is None:
            return None
        if info.si_pid in self._by_pid:
            # As long as the leader is a zombie, its number cannot become another group's.
            process_tree.kill_group(info.si_pid)
        return os.waitpid(info.si_pid, 0)

    def _read(self, child: _Child) -> None:
        if child.output < 0:  # closed earlier in the same round
            return
        with contextlib.suppress(BlockingIOError):
            data = os.read(child.output, _READ_BYTES)
            if not data:
                self._close_output(child)
                return
            child.log.write(data)
            if child.log.trouble != child.reported_trouble:
                child.reported_trouble = child.log.trouble
                self._report_status(child, NodePhase.RUNNING)

    def _close_output(self, child: _Child) -> None:
        if child.output >= 0:
            self._closed(child.output)
            os.close(child.output)
            child.output = -1

    def _end(self, child: _Child, exit_code: int, now: float) -> None:
        child.process.returncode = exit_code  # else the object would wait for the process itself
        drained = 0
        while child.output >= 0 and drained < _DRAIN_BYTES:
            try:
                data = os.read(child.output, _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                break
            child.log.write(data)
            drained += len(data)
        self._close_output(child)
        child.log.close()
        del self._running[child.request.name]
        del self._by_pid[child.pid]
        self._ended_sessions.add(child.pid)
        ending = judge(exit_code=exit_code, stopped=child.stopped, memory_kills=self._memory_kills, now=now)
        message = ending.message
        last_line = child.log.last_line()[:_LONGEST_LAST_LINE]
        if ending.reason is EndReason.ERROR and last_line:
            message = f"{message}; last output: {last_line}"
        self._kill_leftovers()
        self._set(
            NodeStatus(
                name=child.request.name,
                role=child.request.role,
                phase=NodePhase.SUCCEEDED if exit_code == 0 else NodePhase.FAILED,
                reason=ending.reason,
                exit_code=ending.exit_code,
                message=message,
            ),
            None,
        )

    def _kill_leftovers(self) -> None:
        """Orphans of nodes that have ended, not of living ones. Their own children come up in turn."""
        for pid in process_tree.children():
            if pid not in self._by_pid and self._is_left_over(pid):
                process_tree.kill(pid)

    def _is_left_over(self, pid: int) -> bool:
        node = process_tree.marked_node(pid, str(self._log_folder))
        if node is not None:
            return node not in self._running
        return process_tree.session(pid) in self._ended_sessions

    def _report_status(self, child: _Child, phase: NodePhase) -> None:
        trouble = f"its log cannot be written: {child.reported_trouble}" if child.reported_trouble else ""
        request = child.request
        self._set(NodeStatus(name=request.name, role=request.role, phase=phase, message=trouble), child.pid)

    def _cannot_start(self, request: NodeRequest, message: str) -> None:
        self._set(
            NodeStatus(
                name=request.name,
                role=request.role,
                phase=NodePhase.FAILED,
                reason=EndReason.CANNOT_START,
                message=message,
            ),
            None,
        )

    def _set(self, status: NodeStatus, pid: int | None) -> None:
        self._statuses[status.name] = status
        self._changed(status, pid)


def _why_not(request: NodeRequest, error: Exception) -> str:
    program = request.command[0]
    path = request.environment.get("PATH", os.environ.get("PATH", os.defpath))
    if isinstance(error, FileNotFoundError):
        if os.path.exists(program):
            return f"{program!r} cannot be run: the interpreter named in its first line does not exist"
        where = "" if os.sep in program else f" in PATH ({path})"
        return f"there is no command {program!r}{where}"
    if isinstance(error, PermissionError):
        return f"{program!r} is not a program that may be run"
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return f"{program!r} cannot be run: {reason}"
