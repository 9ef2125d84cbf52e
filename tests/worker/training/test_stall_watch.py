"""The log of a stalled worker has the line where it waits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import threading
from elasticdl.worker.training.stall_watch import StallWatch

watch = StallWatch(0.25)
watch.restart()

def hanging_loader():
    threading.Event().wait(STOP)

STOP = float(__import__("sys").argv[1])
if __import__("sys").argv[2] == "idle":
    watch.stop()
hanging_loader()
watch.stop()
"""


def run(tmp_path: Path, state: str) -> str:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(file), "1.5", state], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stderr


def test_stalled_worker_writes_its_stack(tmp_path: Path) -> None:
    assert "in hanging_loader" in run(tmp_path, "working")


def test_worker_without_work_writes_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "idle") == ""
