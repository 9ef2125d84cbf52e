"""Following a page of the documentation line by line: every command runs, and prints what the page says it prints."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.conftest import ROOT, STARTUP
from e2e.documents import missing_line, outputs_of, steps_of, whole_script

# Those that need a cluster are followed by the tests that have one.
_CLUSTER_PAGES = ("paddle-kubernetes.md", "elastic-clusters.md")
CLUSTER_PAGES = sorted(
    [*(ROOT / "docs").glob("kubernetes*.md"), *(ROOT / "docs" / name for name in _CLUSTER_PAGES)]
)
PAGES = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md")} - {*CLUSTER_PAGES})
# What a reader has of the repository; the pages make the rest themselves.
_CHECKOUT = ("model_zoo", "elasticdl/manifests", "paddle", "example")


def follow(page: Path, folder: Path, *, seconds: float) -> None:
    """Does what the page says, in a checkout in the folder. `seconds`, far more than it needs, end what hangs."""
    checkout = _checkout(folder)
    steps = steps_of(page)
    if not steps:
        return
    output = folder / "output"
    ended = _bash(whole_script(steps), checkout, _environment(folder), output, seconds)
    text = output.read_text(errors="replace")
    outputs = outputs_of(text)
    if "end" not in outputs:
        failed = steps[int(list(outputs)[-1])]
        pytest.fail(
            f"{page.name}:{failed.line}: {ended}\n--- step\n{failed.script}\n--- output\n{text[-6000:]}"
        )
    for number, step in enumerate(steps):
        line = missing_line(step.shown, outputs[str(number)])
        assert line is None, (
            f"{page.name}:{step.line}: the page shows a line that is not printed, or not in this order:\n"
            f"{line}\n--- output\n{outputs[str(number)][-6000:]}"
        )


def _checkout(folder: Path) -> Path:
    checkout = folder / "checkout"
    for part in _CHECKOUT:
        shutil.copytree(ROOT / part, checkout / part, ignore=shutil.ignore_patterns("__pycache__"))
    return checkout


def _environment(folder: Path) -> dict[str, str]:
    commands = folder / "bin"
    commands.mkdir()
    installed = Path(sys.executable).parent
    if not (installed / "elasticdl").exists():
        # Run from its folder, without being installed.
        script = commands / "elasticdl"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m elasticdl "$@"\n')
        script.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{commands}:{installed}:{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([STARTUP, str(ROOT)]),
        "HOME": str(folder),
        "ELASTICDL_HOME": str(folder / "home"),
        "ELASTICDL_CACHE": str(folder / "cache"),
        # Several workers on few cores: each with one thread is much faster than each with all.
        "ELASTICDL_THREADS": "1",
        "NO_COLOR": "1",
    }


def _bash(script: str, folder: Path, environment: dict[str, str], output: Path, seconds: float) -> str:
    """Runs it and says how it ended."""
    file = folder.parent / "page.sh"
    file.write_text(script)
    with output.open("wb") as sink:
        process = subprocess.Popen(
            ["bash", str(file)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return f"ended with exit code {process.wait(timeout=seconds)}"
        except subprocess.TimeoutExpired:
            return f"did not end within {seconds:g} seconds"
        finally:
            # Jobs in the background too, where a page failed before it waited for them.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
