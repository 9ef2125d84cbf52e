"""Documents that nest deeper than a stack is high are errors, and end no process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BRACKETS = "[" * 100_000
DASHES = "- " * 100_000
BRACES = '{"a":' * 100_000


@pytest.mark.parametrize("text", [BRACKETS, DASHES, BRACES], ids=["brackets", "dashes", "braces"])
@pytest.mark.parametrize("place", ["job file", "cluster_spec"])
def test_deep_nesting_is_bad_input(tmp_path: Path, text: str, place: str) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text(text)
    words = ["-f", str(file)]
    if place == "cluster_spec":
        words = ["--job_command=x", "--image_name=x", f"--cluster_spec={file}"]
    # In a process of its own: the stack of this one would be gone.
    done = subprocess.run(
        [sys.executable, "-m", "elasticdl", "train", "--dry_run", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr[-500:]
    assert "deep.yaml" in done.stderr
