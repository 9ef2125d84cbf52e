"""Running commands: loudly, and asking only whether they succeed."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Word = str | Path


def run(*command: Word, **options: Any) -> subprocess.CompletedProcess[Any]:
    return subprocess.run([str(word) for word in command], check=True, **options)


def succeeds(*command: Word) -> bool:
    return subprocess.run([str(word) for word in command], check=False, capture_output=True).returncode == 0


def wait_for(what: str, ready: Callable[[], bool], *, seconds: float, hint: str = "") -> None:
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise SystemExit(f"{what}: not ready after {seconds:g} s. {hint}")
        time.sleep(0.3)
