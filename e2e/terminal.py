"""A terminal that a command runs in, and that can be closed like a window or a lost ssh connection."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence

from e2e.conftest import ROOT


class Terminal:
    """A shell in a session of its own, whose foreground command this is. What it prints is read all the time."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str]) -> None:
        self._ours, its = pty.openpty()
        self.process = subprocess.Popen(
            # Not replaced by the command, which is the last one: the shell gets the hang-up too.
            ["bash", "-c", '"$@"; exit $?', "bash", *command],
            cwd=ROOT,
            env={**environment, "TERM": "xterm"},
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
            # Standard input becomes the controlling terminal of the session.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(its)
        self._output = b""
        self._closing = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    @property
    def output(self) -> str:
        return self._output.decode(errors="replace")

    def close(self) -> None:
        """The terminal is gone: the kernel sends SIGHUP to the session, and writing to it fails."""
        if not self._closing.is_set():
            self._closing.set()
            self._reader.join()
            os.close(self._ours)

    def _read(self) -> None:
        # By turns: a read that waits would keep the terminal open.
        while not self._closing.is_set():
            if not select.select([self._ours], [], [], 0.05)[0]:
                continue
            try:
                self._output += os.read(self._ours, 65536)
            except OSError:
                # All that ran in it has ended.
                return
