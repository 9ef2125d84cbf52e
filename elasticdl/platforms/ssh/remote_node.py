"""The local process of a node that runs on another host: an ssh client, and the translation of its reports.

The keeper of the job starts it like any node (`platforms.local`). It starts ssh, which starts the agent on the host
(`agent`), prints the node's output, forwards SIGTERM, and ends as the node ended: with its exit code, or by its signal.
When it is killed, the connection closes, and the agent kills the node.

Two signals that no other process here ends with report what no exit code can: the node cannot start (`CANNOT_START`),
or its host was lost (`HOST_LOST`). The reason is in the file that the request names, for `ssh_platform`.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from elasticdl.platforms.ssh import agent
from elasticdl.platforms.ssh.launch import SshOptions, ssh_command, ssh_problem

# The request, as JSON: it may contain secrets, so it is no argument.
REQUEST = "ELASTICDL_REMOTE_NODE"
CANNOT_START, HOST_LOST = signal.SIGUSR1, signal.SIGUSR2
_OWN_SIGNALS = (CANNOT_START, HOST_LOST)

# Before a node is tried again that was turned away (MaxStartups of sshd), each time with some chance in it.
_RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0)
_TURNED_AWAY = (b"kex_exchange_identification", b"exceeded maxstartups")
_PING_SECONDS = 5.0
_READ_BYTES = 64 * 1024
_SAID_BYTES = 8 * 1024


@dataclass
class Session:
    """A run of the agent on a host. `start` is the document that it receives."""

    host: str
    options: SshOptions
    document: dict[str, Any]
    # Readable when a SIGTERM is to be passed on.
    wake_up: socket.socket | None = None
    # The output of ssh, and of a login shell, until the agent answers.
    said: bytearray = field(default_factory=bytearray)
    has_greeted: bool = False
    exit_code: int = 0
    # The message that ended it: (END or FAILURE, its content); none if the connection broke.
    last: tuple[bytes, dict[str, Any]] | None = None

    def run(self, *, print_to: int | None = None) -> None:
        """Returns when ssh has ended. `print_to`: a descriptor for the output of the node."""
        process = subprocess.Popen(
            ssh_command(self.host, self.options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        received = bytearray()
        to_send = deque([json.dumps(self.document).encode() + b"\n"])
        outputs = [process.stdout, process.stderr]
        wake_up = self.wake_up
        pinged_at = time.monotonic()
        while outputs:
            reading: list[Any] = [*outputs, *([wake_up] if wake_up else [])]
            writing: list[Any] = [process.stdin] if to_send else []
            readable, writable, _ = select.select(reading, writing, [], _PING_SECONDS)
            if wake_up in readable and wake_up is not None:
                wake_up.recv(4096)
                to_send.append(agent.TERMINATE + b"\n")
                if not self.has_greeted:
                    # There is no node yet that could end by itself.
                    process.terminate()
            if process.stderr in readable:
                self._hear(process.stderr, outputs, self.said)
            if process.stdout in readable:
                self._hear(process.stdout, outputs, received)
                self._take(received, print_to)
            if time.monotonic() - pinged_at >= _PING_SECONDS and not to_send:
                pinged_at = time.monotonic()
                to_send.append(agent.PING + b"\n")
            if writable and to_send:
                try:
                    # A pipe may take a part only.
                    sent = os.write(process.stdin.fileno(), to_send[0][:4096])
                except OSError:
                    to_send.clear()
                    continue
                to_send[0] = to_send[0][sent:]
                if not to_send[0]:
                    to_send.popleft()
        with contextlib.suppress(OSError):
            process.stdin.close()
        self.exit_code = process.wait()
        process.stdout.close()
        process.stderr.close()

    def _hear(self, pipe: Any, outputs: list[Any], into: bytearray) -> None:
        data = os.read(pipe.fileno(), _READ_BYTES)
        if not data:
            outputs.remove(pipe)
        into += data
        if into is self.said:
            del into[:-_SAID_BYTES]

    def _take(self, received: bytearray, print_to: int | None) -> None:
        if not self.has_greeted:
            before, found, rest = received.partition(agent.GREETING)
            if not found:
                return
            self.has_greeted = True
            received[:] = rest
            self.said[:0] = before[-_SAID_BYTES:]
        while len(received) >= agent.HEAD.size:
            kind, length = agent.HEAD.unpack_from(received)
            end = agent.HEAD.size + length
            if len(received) < end:
                return
            payload = bytes(received[agent.HEAD.size : end])
            del received[:end]
            if kind == agent.OUTPUT:
                if print_to is not None:
                    _write(print_to, payload)
            else:
                self.last = kind, json.loads(payload)

    @property
    def problem(self) -> tuple[str, str]:
        """Why there is no node, or no node any more, and a hint. To be asked if `last` is no end."""
        if self.last is not None:
            return f"host {self.host}: {self.last[1]['message']}", self.last[1]["hint"]
        said = self.said.decode(errors="replace")
        if not self.has_greeted:
            return ssh_problem(self.host, exit_code=self.exit_code, said=said, python=self.options.python)
        lines = [line for line in said.splitlines() if line.strip()]
        reason = lines[-1].strip() if lines else "the connection was closed"
        return f"host {self.host} was lost: {reason}", ""

    @property
    def was_turned_away(self) -> bool:
        """The server has dropped the connection at once, as it does with many that log in at the same time."""
        said = self.said.lower()
        return not self.has_greeted and self.exit_code == 255 and any(words in said for words in _TURNED_AWAY)

    @property
    def is_lost(self) -> bool:
        """The host, not what is on it, is the problem: another one may do."""
        return self.last is None and (self.has_greeted or self.exit_code in (255, -signal.SIGTERM))


def hear_termination() -> socket.socket:
    """Returns a socket that SIGTERM makes readable; the signal has no other effect from now on."""
    wake_up, signalled = socket.socketpair()
    signalled.setblocking(False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.set_wakeup_fd(signalled.detach(), warn_on_full_buffer=False)
    return wake_up


def main() -> NoReturn:
    wake_up = hear_termination()
    request = json.loads(os.environ.pop(REQUEST))
    for seconds in (*_RETRY_SECONDS, 0.0):
        session = Session(
            host=request["host"],
            options=SshOptions(**request["options"]),
            document=request["document"],
            wake_up=wake_up,
        )
        try:
            session.run(print_to=1)
        except OSError as error:
            message = f"ssh cannot be started: {error.strerror}"
            _give_up(CANNOT_START, message, "Install OpenSSH's client.", Path(request["report"]))
        if not session.was_turned_away or not seconds:
            break
        # Apart from the others that were turned away at the same time.
        time.sleep(seconds * random.uniform(0.5, 1.5))
    if session.last is not None and session.last[0] == agent.END:
        _end_as(session.last[1]["exit_code"])
    message, hint = session.problem
    _give_up(HOST_LOST if session.is_lost else CANNOT_START, message, hint, Path(request["report"]))


def _give_up(number: signal.Signals, message: str, hint: str, report: Path) -> NoReturn:
    text = f"{message[0].upper()}{message[1:]}. {hint}".strip()
    _write(1, f"{text}\n".encode())
    with contextlib.suppress(OSError):
        report.write_text(text)
    _end_as(-number, own=True)


def _end_as(code: int, *, own: bool = False) -> NoReturn:
    """Ends this process as the node ended, so that its end is judged as that of any process of this machine."""
    if code < 0 and (own or -code not in _OWN_SIGNALS):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    with contextlib.suppress(OSError):
        while view:
            view = view[os.write(descriptor, view) :]


if __name__ == "__main__":
    sys.exit(main())
