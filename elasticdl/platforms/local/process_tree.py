"""The tree of processes: finds and kills the processes that nodes of the local platform leave behind.

Three ties hold a process to its job, each catching what the one before misses:

- its *parent*: on Linux a node asks the kernel to be killed when the keeper that forked it dies
  (`die_with_parent`). The kernel drops that wish for programs that are set-user-ID, and children of the node
  do not inherit it.
- its *ancestor*: on Linux the keeper adopts every orphan below it (`adopt_orphans`), also one that has left
  its session and process group, so that it can end whatever is there by ending its own children again and
  again.
- its *mark*: an environment variable that every process of a node inherits, for the case that the keeper
  itself was killed. Readable on Linux only, and only until a program overwrites its own environment area (as
  programs do that set their process title) or starts another with an environment made from nothing.

Elsewhere (macOS) there are process groups alone: a grandchild that starts a session of its own is then out of
reach. So is, everywhere, what a node has started by asking a service that is not of the job (a container, a
systemd unit, a cron job).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from dataclasses import dataclass

# Holds "LOG FOLDER/NODE": the folder is what stays the same when a job is run again after a crash.
MARK = "ELASTICDL_PROCESS_OF"

ON_LINUX = sys.platform.startswith("linux")

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

# Loaded here because a child between fork and exec should do as little as possible.
_libc = ctypes.CDLL(None, use_errno=True) if ON_LINUX else None


@dataclass(frozen=True)
class ProcessState:
    """A process as the kernel shows it. `state` is the letter of proc(5): R, S, D, T, Z, …"""

    parent: int
    state: str


def die_with_parent(parent: int) -> None:
    """Kills a child that was just forked when its parent ends.

    The kernel takes "parent" to be the *thread* that forked, so that thread must live as long as the process;
    the keeper has only one. The parent may have died before the wish was heard, which shows in another
    parent.
    """
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Makes descendants that lose their parent children of this process instead of init's."""
    if _libc is not None:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> list[int]:
    """The children of this single-threaded process, adopted ones included; none where it cannot be known."""
    if not ON_LINUX:
        return []
    own = os.getpid()
    try:
        with open(f"/proc/self/task/{own}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:  # a kernel built without CONFIG_PROC_CHILDREN
        return [pid for pid in _processes() if _parent(pid) == own]


def mark(folder: str, node: str) -> str:
    return f"{folder}/{node}"


def marked_node(pid: int, folder: str) -> str | None:
    """The node of that folder which this process descends from, if its mark can be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environment = file.read()
    except OSError:  # gone, or another user's, or no such file system
        return None
    prefix = os.fsencode(f"{MARK}={folder}/")
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return os.fsdecode(entry[len(prefix) :])
    return None


def session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None


def kill_marked(folder: str, *, seconds: float = 5.0) -> int:
    """Ends every process marked with that folder, and tells how many there were. Gives up after a time."""
    met: set[int] = set()
    own = os.getpid()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        # Looked for again until a whole round finds none: a process may fork while it is being found.
        found = [pid for pid in _processes() if pid != own and marked_node(pid, folder) is not None]
        if not found:
            break
        for pid in found:
            kill(pid)
        met.update(found)
    return len(met)


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # Gone already; or it has taken another user's rights, and nothing of ours can end it.
        return


def kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS says EPERM of a group of zombies
        return


def process_table() -> dict[int, ProcessState]:
    """All processes by their number; empty where it cannot be known."""
    found = {pid: _process_state(pid) for pid in _processes()}
    return {pid: state for pid, state in found.items() if state is not None}


def _processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return []


def _parent(pid: int) -> int:
    found = _process_state(pid)
    return 0 if found is None else found.parent


def _process_state(pid: int) -> ProcessState | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is the program's name in parentheses and may hold anything, parentheses too.
            state, parent, *_ = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return ProcessState(parent=int(parent), state=state.decode())
