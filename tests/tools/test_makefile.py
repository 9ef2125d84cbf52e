"""The Makefile: what `make quickstart` prints, and that `make test` runs each test once."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from conftest import COVERED

ROOT = Path(__file__).resolve().parents[2]


def planned(stderr: int, *words: str) -> str:
    """The commands that make would run, in an environment that is not there yet."""
    done = subprocess.run(
        ["make", "-n", "quickstart", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        check=True,
        env={**os.environ, "MAKEFLAGS": ""},
    )
    return done.stdout


@pytest.mark.parametrize("framework", ["keras", "torch", "paddle"])
def test_pip_is_quiet_without_a_terminal(framework: str) -> None:
    commands = planned(subprocess.DEVNULL, f"FRAMEWORK={framework}", "QUICK_ENV=.venv-absent")
    (install,) = [line for line in commands.splitlines() if "-m pip install" in line]
    assert "--quiet" in install
    assert install.endswith(f"-r requirements/{framework}.txt -e '.[{framework},datasets]'")


def test_pip_shows_its_progress_on_a_terminal() -> None:
    main, other = pty.openpty()
    try:
        commands = planned(other, "QUICK_ENV=.venv-absent")
    finally:
        os.close(other)
        os.close(main)
    (install,) = [line for line in commands.splitlines() if "-m pip install" in line]
    assert "--quiet" not in install
    assert "Installing ElasticDL and keras into .venv-absent" in commands


def test_covered_tests_are_those_of_the_makefile() -> None:
    found = re.search(r"^COVERED = (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    assert tuple(found[1].split()) == COVERED
