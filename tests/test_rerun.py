"""Failed tests of whole jobs are rerun alone, and the end of the output and a log list them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MAIN = "import sys; from pathlib import Path; from e2e.rerun import main; sys.exit(main(['-q'], root=Path.cwd()))"
ROOT = Path(__file__).resolve().parents[1]
FAILS_ONCE = """
from pathlib import Path


def test_fails_once():
    marker = Path(__file__).with_name("ran")
    first = not marker.exists()
    marker.touch()
    assert not first
"""
FAILS = "def test_fails():\n    assert False\n"


def _run(folder: Path, **modules: str) -> subprocess.CompletedProcess[str]:
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ELASTICDL_RERUN_LOG": str(folder / "log")}
    command = [sys.executable, "-c", MAIN]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_outcomes_of_reruns_are_the_end_of_the_output_and_logged(tmp_path: Path) -> None:
    done = _run(tmp_path, test_a=FAILS_ONCE, test_b=FAILS)
    listed = [
        "PASSED when rerun alone: test_a.py::test_fails_once",
        "FAILED AGAIN when rerun alone: test_b.py::test_fails",
    ]
    assert done.stdout.splitlines()[-2:] == listed
    assert (tmp_path / "log").read_text().splitlines() == listed
    assert done.returncode == 1


def test_passing_rerun_passes(tmp_path: Path) -> None:
    assert _run(tmp_path, test_a=FAILS_ONCE).returncode == 0


def test_more_failures_than_a_few_are_not_rerun(tmp_path: Path) -> None:
    done = _run(tmp_path, test_a="".join(FAILS.replace("fails", f"fails_{n}") for n in range(4)))
    assert done.returncode == 1
    assert "rerun" not in done.stdout
    assert not (tmp_path / "log").exists()
