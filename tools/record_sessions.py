"""Records the terminal sessions of the documentation: a real small job that loses a worker, seen in a real terminal.

    python -m tools.record_sessions        # writes docs/images/terminal.svg and docs/images/jobs.svg

The commands run in a pseudo-terminal; what they have printed there is drawn by rich's own export. A live display
overwrites itself, so of the frames that it has drawn, the one at the moment of interest is taken. Nothing is redrawn or
made up, but: the home folder is shown as `~`, lines that are left out as `…`, and fonts are not fetched from elsewhere.

Failure modes
    The job ends before its worker is killed, or not with an exact audit: `RuntimeError`, and no picture is written.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import io
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 86, 40
# How rich erases the frame before it draws the next one: each of its lines, from the last one up.
_ERASED = re.compile(r"\r\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# Cursor shown, hidden, and moved; colours stay.
_CONTROL = re.compile(r"\x1b\[\?25[hl]|\x1b\[\d*[A-HJK]|\r")
_TRAIN = """\
elasticdl train --job_name=survivor \\
  --model_zoo=model_zoo --model_def=digits.torch_cnn.custom_model \\
  --training_data=data/digits/train --validation_data=data/digits/test \\
  --num_workers=2 --num_ps=2 --num_epochs=120"""
_KILL = "kill -9 $(elasticdl jobs pid survivor worker-0)"
_TIMEOUT_SECONDS = 600.0
# Of the output of a live display, characters that hold a few frames.
_RECENT = 100_000


def frames(output: str) -> list[str]:
    """Returns what a live display has drawn, one frame after the other, with what was printed between them."""
    return [text for piece in _ERASED.split(output) if (text := _CONTROL.sub("", piece)).strip()]


class Terminal:
    """A command in a pseudo-terminal. It is read all the time: an unread terminal holds its program up."""

    def __init__(self, command: str, folder: Path) -> None:
        # The newest output: a live display draws megabytes.
        self.output = ""
        self._news = threading.Condition()
        self._is_over = False
        main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        self._main = main
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env=_environment(folder),
            stdin=other,
            stdout=other,
            stderr=other,
            start_new_session=True,
        )
        os.close(other)
        threading.Thread(target=self._read, daemon=True).start()

    def read_until(self, is_reached: Callable[[str], bool], what: str) -> None:
        """`is_reached`: called with the newest output."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        # Not under the lock: the terminal is read on meanwhile.
        while not is_reached(self.output):
            if self._is_over or time.monotonic() > deadline:
                raise RuntimeError(f"The session ended before {what}:\n{self.output[-3000:]}")
            with self._news:
                self._news.wait(1.0)

    def finish(self) -> int:
        """Returns the exit code once the command has ended and all of its output is read."""
        with self._news:
            if not self._news.wait_for(lambda: self._is_over, _TIMEOUT_SECONDS):
                raise RuntimeError(f"The session does not end:\n{self.output[-3000:]}")
        return self._process.wait()

    def interrupt(self) -> None:
        os.killpg(self._process.pid, signal.SIGINT)

    def _read(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        is_over = False
        while not is_over:
            piece = b""
            # The terminal is gone with the last process that has it.
            with contextlib.suppress(OSError):
                piece = os.read(self._main, 65536)
            is_over = not piece
            with self._news:
                newest = decode(piece).replace("\r\n", "\n")
                self.output = f"{self.output}{newest}"[-_RECENT:]
                self._is_over = is_over
                self._news.notify_all()


def record(folder: Path) -> dict[str, str]:
    """Runs the job and returns the pictures by the name of their file."""
    (folder / "model_zoo").symlink_to(ROOT / "model_zoo")
    _shell("elasticdl data make digits", folder)
    train = Terminal(_TRAIN, folder)
    train.read_until(lambda output: bool(re.search(r"epoch +[5-9] of", _plain(output))), "the fifth epoch")
    top = Terminal("elasticdl jobs top survivor --interval=3", folder)
    top.read_until(lambda output: len(frames(output)) > 1, "a table")
    top.interrupt()
    top.finish()
    listed = Terminal("elasticdl jobs list", folder)
    listed.finish()
    _shell(_KILL, folder)
    after_kill = ""

    def is_replaced(output: str) -> bool:
        nonlocal after_kill
        after_kill = _after_kill(output)
        return bool(after_kill)

    train.read_until(is_replaced, "the worker was replaced")
    if train.finish():
        raise RuntimeError(f"The job has failed:\n{train.output[-3000:]}")
    last = frames(train.output)[-1]
    if "Exact: every sample" not in last:
        raise RuntimeError(f"The audit is not exact:\n{last}")
    end = last[last.index("total") :] if "total" in last else last
    return {
        "terminal.svg": _draw(
            "elasticdl train",
            [
                _prompt(_TRAIN),
                after_kill,
                _prompt(f"{_KILL}    # in a second terminal"),
                f"…\n{end}",
            ],
            folder,
        ),
        "jobs.svg": _draw(
            "elasticdl jobs",
            [
                _prompt("elasticdl jobs list"),
                frames(listed.output)[-1],
                _prompt("elasticdl jobs top survivor"),
                frames(top.output)[-1].split("^C")[0],
            ],
            folder,
        ),
    }


def _after_kill(output: str) -> str:
    """Returns the newest frame that shows the replacement at work. Empty if there is none."""
    # The last one may not be complete.
    for frame in reversed(frames(output)[:-1]):
        text = _plain(frame)
        if "ended: worker-0 (killed)" in text and re.search(r"worker-2 +working +[1-9]", text):
            return frame
    return ""


def _plain(output: str) -> str:
    return _ESCAPE.sub("", output)


def _prompt(command: str) -> str:
    return f"\x1b[1;32m$\x1b[0m {command}"


def _draw(title: str, parts: Sequence[str], home: Path) -> str:
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    for part in parts:
        lines = part.replace(str(home), "~").strip("\n").split("\n")
        console.print(Text.from_ansi("\n".join(line.rstrip() for line in lines)), no_wrap=True, crop=True)
    name = title.replace(" ", "-")
    return re.sub(
        r"\s*@font-face \{.*?\}\n", "", console.export_svg(title=title, unique_id=name), flags=re.DOTALL
    )


def _shell(command: str, folder: Path) -> None:
    subprocess.run(
        ["bash", "-c", command], cwd=folder, env=_environment(folder), check=True, capture_output=True
    )


def _environment(folder: Path) -> dict[str, str]:
    commands = folder / "bin"
    if not commands.exists():
        commands.mkdir()
        script = commands / "elasticdl"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m elasticdl "$@"\n')
        script.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "KUBECONFIG": str(folder / "none"),
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
    }


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="elasticdl-") as folder:
        for name, picture in record(Path(folder).resolve()).items():
            (IMAGES / name).write_text(picture)
            print(f"{IMAGES / name}: {len(picture):,} bytes")


if __name__ == "__main__":
    main()
