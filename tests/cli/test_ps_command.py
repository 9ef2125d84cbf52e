"""`elasticdl ps`: says what it is and what it needs, and is the program that jobs run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticdl.ps import __main__ as program

VARIABLES = (
    "MASTER_ADDR",
    "ELASTICDL_NODE",
    "WORKER_ID",
    "ELASTICDL_TOKEN_FILE",
    "ELASTICDL_BIND",
    "ELASTICDL_PORT",
    "ELASTICDL_ADVERTISE",
)


@pytest.fixture(autouse=True)
def _without_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_help_names_everything_it_needs(elasticdl: Any) -> None:
    shown = elasticdl("ps", "--help")
    assert shown.code == 0
    for name in VARIABLES:
        assert name in shown.out
    assert "parameter server" in shown.out
    assert "\n  ps " in elasticdl("--help").out


def test_without_a_job(elasticdl: Any) -> None:
    shown = elasticdl("ps")
    assert shown.code == 2
    assert "MASTER_ADDR, ELASTICDL_NODE, WORKER_ID and ELASTICDL_TOKEN_FILE are not set." in shown.err
    assert "elasticdl train --num_ps=2" in shown.err


def test_with_half_of_it(elasticdl: Any, tmp_path: Path) -> None:
    given = ["ps", "--master-addr=localhost:1", "--node=ps-0", "--number=0"]
    assert "ELASTICDL_TOKEN_FILE is not set." in elasticdl(*given).err
    missing = elasticdl(*given, f"--token_file={tmp_path / 'token'}")
    assert "The job's token cannot be read from" in missing.err
    (tmp_path / "token").write_text("\n")
    assert "There is no token in" in elasticdl(*given, f"--token_file={tmp_path / 'token'}").err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--number=first", "WORKER_ID is 'first': servers are numbered from 0 on."),
        ("--port=99999", "ELASTICDL_PORT is '99999', and no port."),
    ],
)
def test_with_something_wrong(elasticdl: Any, tmp_path: Path, option: str, message: str) -> None:
    (tmp_path / "token").write_text("secret")
    given = ["--master_addr=localhost:1", "--node=ps-0", "--number=0", f"--token_file={tmp_path / 'token'}"]
    shown = elasticdl("ps", *given, option)
    assert (shown.code, message in shown.err) == (2, True)


def test_options_go_before_the_environment(elasticdl: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[dict[str, str]] = []

    def main(environment: dict[str, str]) -> int:
        ran.append(environment)
        return 18

    monkeypatch.setattr(program, "main", main)
    monkeypatch.setenv("MASTER_ADDR", "localhost:1")
    monkeypatch.setenv("ELASTICDL_NODE", "ps-3")
    assert elasticdl("ps", "--master_addr=localhost:2", "--port=7").code == 18
    assert {name: ran[0].get(name) for name in VARIABLES} == {
        **dict.fromkeys(VARIABLES),
        "MASTER_ADDR": "localhost:2",
        "ELASTICDL_NODE": "ps-3",
        "ELASTICDL_PORT": "7",
    }


def test_module_prints_the_same_error() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    done = subprocess.run(
        [sys.executable, "-m", "elasticdl.ps"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 18
    assert done.stderr.startswith("error: A parameter server is one of a job")
    assert "Traceback" not in done.stderr
