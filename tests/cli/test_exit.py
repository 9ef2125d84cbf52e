"""How the command ends when something else than the input goes wrong: honestly, and with a code that says so."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from elasticdl import __version__
from elasticdl.cli.group import Entry
from elasticdl.cli.main import COMMANDS, main
from elasticdl.errors import UserError

ROOT = Path(__file__).parents[2]


def raising(error: BaseException) -> click.Command:
    @click.command()
    def command() -> None:
        raise error

    return command


@pytest.fixture
def ending(monkeypatch: pytest.MonkeyPatch, elasticdl: Any) -> Any:
    """What `elasticdl try` does if its code raises this."""

    def run(error: BaseException) -> Any:
        monkeypatch.setattr(sys.modules[__name__], "_trial", raising(error), raising=False)
        monkeypatch.setitem(COMMANDS, "try", Entry(place=f"{__name__}:_trial", help=""))
        return elasticdl("try")

    return run


def test_an_error_of_the_user(ending: Any) -> None:
    result = ending(UserError("It is broken.", hint="Mend it."))
    assert (result.code, result.err) == (2, "error: It is broken.\nhint: Mend it.\n")


def test_an_interruption(ending: Any) -> None:
    result = ending(KeyboardInterrupt())
    assert result.code == 130
    assert result.err.strip() == ""


def test_a_defect_of_ours_is_shown_whole(ending: Any) -> None:
    result = ending(ZeroDivisionError("by nothing"))
    assert result.code == 70
    assert "ZeroDivisionError: by nothing" in result.err
    assert "raise error" in result.err
    assert "elasticdl crashed." in result.err
    assert "command: elasticdl try" in result.err
    assert f"elasticdl {__version__}, Python 3." in result.err


def test_an_input_that_ends_is_no_interruption(ending: Any) -> None:
    result = ending(EOFError("the other side is gone"))
    assert result.code == 70
    assert "EOFError: the other side is gone" in result.err


def test_a_full_disk(ending: Any) -> None:
    result = ending(OSError(errno.ENOSPC, "No space left on device", "/data/x"))
    assert result.code == 2
    assert "There is no space left on the disk (/data/x)." in result.err


def test_dry_run_on_full_disk_fails_without_traceback(minimal: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "elasticdl", "train", *minimal, "--dry_run"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 2
    assert "There is no space left on the disk" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_goes_away() -> None:
    writer = subprocess.Popen(
        [sys.executable, "-m", "elasticdl", "train", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert writer.stdout is not None
    writer.stdout.close()
    _, err = writer.communicate()
    assert b"Traceback" not in err


def test_the_exit_code_of_a_command_is_handed_on(elasticdl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def command() -> int:
        return 3

    monkeypatch.setattr(sys.modules[__name__], "_trial", command, raising=False)
    monkeypatch.setitem(COMMANDS, "try", Entry(place=f"{__name__}:_trial", help=""))
    assert main(["try"]) == 3
