"""The agent: what runs beside a node on its host, at the other end of an ssh connection.

Its source is the remote command (`python -I -S -c SOURCE`), so that a host without elasticdl, or with another version,
is reported as such. It therefore imports nothing but the standard library. `remote_node` is its counterpart: it sends a
document as the first line (what to run, and the files that belong to it), then a line for each signal to pass on, and a
`ping` every few seconds. The agent answers with frames: a letter, the length, the payload.

Files (the job's token and its key) are written to a folder of this user alone, which goes with the node.

Failure modes
    The connection ends, in whatever way: the node and its descendants are killed. Nothing arrives for
    `SILENCE_SECONDS`: the host is cut off, and the same happens, because the node is being replaced elsewhere. The
    agent is killed: the kernel kills the node. A node that the kernel kills for lack of memory ends with the
    exit code for that.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any

# The end of text that a login shell may print first.
GREETING = b"\0elasticdl-agent-1\n"
HEAD = struct.Struct("!cI")
OUTPUT, END, FAILURE = b"o", b"e", b"f"
TERMINATE, PING = b"terminate", b"ping"
# Three pings of the other side, and the time that a connection takes to recover from lost packets.
SILENCE_SECONDS = 30.0

_READ_BYTES = 64 * 1024
# The output that an ended node may have left in the pipe, also if a descendant continues to write.
_DRAIN_BYTES = 1024 * 1024
_EXIT_OUT_OF_MEMORY = 17  # `elasticdl.platforms.platform`
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_VERSION_SECONDS = 60.0
_LOOK_SECONDS = 5.0


class Failed(Exception):
    """The node cannot be started here. A hint may follow the message."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def main() -> None:
    os.write(1, GREETING)
    connection = Connection()
    with tempfile.TemporaryDirectory(prefix="elasticdl-") as folder:
        try:
            document = json.loads(connection.first_line())
            node = Node(document, folder)
        except Failed as error:
            connection.send(FAILURE, json.dumps({"message": str(error), "hint": error.hint}).encode())
            return
        if node.process is None:
            found = {"exit_code": 0, "cores": cores(), "addresses": free_addresses(document["ports"])}
            connection.send(END, json.dumps(found).encode())
            return
        try:
            node.run(connection)
        finally:
            node.kill()


class Connection:
    """Standard input and output."""

    def __init__(self) -> None:
        self._received = b""
        self.is_open = True
        self._heard_at = time.monotonic()

    def first_line(self) -> bytes:
        while b"\n" not in self._received:
            self.read()
            if not self.is_open:
                raise SystemExit(1)
        line, _, self._received = self._received.partition(b"\n")
        return line

    def words(self) -> list[bytes]:
        """The lines that have arrived since the last call."""
        *lines, self._received = self._received.split(b"\n")
        return lines

    @property
    def is_silent(self) -> bool:
        return time.monotonic() - self._heard_at > SILENCE_SECONDS

    def send(self, kind: bytes, payload: bytes) -> None:
        data = memoryview(HEAD.pack(kind, len(payload)) + payload)
        try:
            while data:
                data = data[os.write(1, data) :]
        except OSError:
            self.is_open = False

    def read(self) -> None:
        """Waits for more, or for the end of the connection."""
        try:
            data = os.read(0, _READ_BYTES)
        except OSError:
            data = b""
        self._received += data
        self._heard_at = time.monotonic()
        self.is_open = self.is_open and bool(data)


class Node:
    """The process that the document describes; none if the document is a check of this host only."""

    def __init__(self, document: dict[str, Any], folder: str) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._output = -1
        self._memory_kills = MemoryKills()
        environment = environment_of(document, folder)
        check(document, environment)
        if not document["command"]:
            return
        own = os.getpid()
        libc = ctypes.CDLL(None) if sys.platform.startswith("linux") else None
        if libc is not None:
            # Descendants that lose their parent become children of this process, which kills them in the end.
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

        def die_with_agent() -> None:
            if libc is not None:
                libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != own:
                os.kill(os.getpid(), signal.SIGKILL)

        self._output, child_output = os.pipe()
        command = document["command"]
        try:
            self.process = subprocess.Popen(
                command,
                env=environment,
                cwd=document["directory"] or None,
                stdin=subprocess.DEVNULL,
                stdout=child_output,
                stderr=child_output,
                start_new_session=True,
                preexec_fn=die_with_agent,
            )
        except FileNotFoundError:
            path = environment.get("PATH", os.defpath)
            raise Failed(f"there is no command {command[0]!r} in PATH ({path})") from None
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reason = getattr(error, "strerror", "") or error
            raise Failed(f"{command[0]!r} cannot be run: {reason}") from None
        finally:
            os.close(child_output)
        os.set_blocking(self._output, False)

    def run(self, connection: Connection) -> None:
        """Runs until the node has ended, or the connection has."""
        assert self.process is not None
        wake_up, signalled = socket.socketpair()
        signalled.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Open as long as this process: descendants end after this method, too.
        signal.set_wakeup_fd(signalled.detach(), warn_on_full_buffer=False)
        while connection.is_open and not connection.is_silent:
            for word in connection.words():
                if word == TERMINATE:
                    # Its own process alone: its helpers are needed until it has finished.
                    self.process.terminate()
            code = self.process.poll()
            if code is not None:
                # As long as descendants may write, an end of the output does not come by itself.
                self.kill()
                self._pass_on(connection, _DRAIN_BYTES)
                if code == -signal.SIGKILL and self._memory_kills.has_risen():
                    code = _EXIT_OUT_OF_MEMORY
                connection.send(END, json.dumps({"exit_code": code}).encode())
                return
            self._memory_kills.observe()
            watched: list[Any] = [0, wake_up]
            if self._output >= 0:
                watched.append(self._output)
            readable = select.select(watched, [], [], _LOOK_SECONDS)[0]
            if self._output in readable:
                self._pass_on(connection)
            if wake_up in readable:
                wake_up.recv(4096)
            if 0 in readable:
                connection.read()

    def kill(self) -> None:
        """Kills the node and all that descends from it."""
        assert self.process is not None
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        while True:
            for pid in own_children():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            try:
                os.waitpid(-1, 0)
            except OSError:
                return

    def _pass_on(self, connection: Connection, most: int = _READ_BYTES) -> None:
        while self._output >= 0 and most > 0:
            try:
                data = os.read(self._output, _READ_BYTES)
            except BlockingIOError:
                return
            if not data:
                os.close(self._output)
                self._output = -1
                return
            most -= len(data)
            connection.send(OUTPUT, data)


def environment_of(document: dict[str, Any], folder: str) -> dict[str, str]:
    """Merges the environments of the login, of the job and of this host."""
    environment = dict(os.environ)
    path = environment.get("PATH", os.defpath)
    environment.update(document["environment"])
    if document["programs"]:
        # A `python` in a command is the one that runs us.
        environment["PATH"] = os.pathsep.join([document["programs"], path])
    for variable, content in document["files"].items():
        name = os.path.join(folder, variable.lower())
        with open(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(content)
        environment[variable] = name
    peer, own = ends_of_connection()
    if document["master_port"]:
        environment["MASTER_ADDR"] = join(document["master_host"] or peer, document["master_port"])
        environment["MY_POD_IP"] = environment["ELASTICDL_BIND"] = own
    if document["sharing"]:
        environment.setdefault("ELASTICDL_THREADS", str(max(1, cores() // document["sharing"])))
    return environment


def ends_of_connection() -> tuple[str, str]:
    """Returns the addresses by which this host reaches the other side, and vice versa."""
    ends = os.environ.get("SSH_CONNECTION", "").split()
    return (ends[0], ends[2]) if len(ends) == 4 else ("", socket.gethostname())


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def free_addresses(count: int) -> list[str]:
    """HOST:PORT, at which nothing listens here."""
    own = ends_of_connection()[1]
    family = socket.AF_INET6 if ":" in own else socket.AF_INET
    with contextlib.ExitStack() as taken:
        # All are kept until the last is found, or one port would be found twice.
        probes = [taken.enter_context(socket.socket(family)) for _ in range(count)]
        for probe in probes:
            probe.bind((own, 0))
        return [join(own, probe.getsockname()[1]) for probe in probes]


def check(document: dict[str, Any], environment: dict[str, str]) -> None:
    """Raises `Failed` if something is not here that the node needs."""
    for flag, path in document["needed"].items():
        if not os.path.exists(path):
            raise Failed(
                f"there is no {path} ({flag})",
                "All hosts need it at this path: a shared folder, or a copy (rsync -a).",
            )
    version, python = document["version"], sys.executable
    if not version:
        return
    try:
        asked = subprocess.run(
            [python, "-c", "import elasticdl; print(elasticdl.__version__)"],
            env=environment,
            cwd=document["directory"] or None,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{python} does not import elasticdl within {_VERSION_SECONDS:.0f} s") from None
    if asked.returncode:
        said = (asked.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failed(
            f"{python} cannot import elasticdl: {said}",
            "Install the same version there, or name a Python that has it: --hosts_python.",
        )
    found = asked.stdout.strip()
    if found != version:
        raise Failed(
            f"{python} has elasticdl {found}, and this job is of {version}",
            "Install the same version on all hosts.",
        )


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class MemoryKills:
    """The kernel's count of processes that it has killed for lack of memory: whether it rose in the last seconds."""

    def __init__(self) -> None:
        count = self._count()
        self._marks = [(time.monotonic(), count), (time.monotonic(), count)]

    def observe(self) -> None:
        if time.monotonic() - self._marks[-1][0] > _LOOK_SECONDS:
            self._marks = [self._marks[-1], (time.monotonic(), self._count())]

    def has_risen(self) -> bool:
        return self._count() > self._marks[0][1]

    @staticmethod
    def _count() -> int:
        with contextlib.suppress(OSError, ValueError), open("/proc/vmstat") as file:
            for line in file:
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0


def own_children() -> list[int]:
    own = str(os.getpid()).encode()
    found = []
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                    # The second field is the program's name in parentheses and may contain anything.
                    if file.read().rpartition(b")")[2].split()[1] == own:
                        found.append(int(name))
    return found


if __name__ == "__main__":
    main()
