"""`elasticdl data`: what a person types, and what they see."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.cli.main import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in a folder of its own; returns exit code, output and error output."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["data", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_make_digits_writes_both_parts(run: Run, tmp_path: Path) -> None:
    code, output, _ = run("make", "digits")
    assert code == 0
    assert output.startswith("data/digits/train: 1437 samples, ")
    assert "data/digits/test: 360 samples, " in output
    assert (tmp_path / "data" / "digits" / "train" / "digits-00000.recordio").exists()


@pytest.mark.parametrize("flag", ["--records_per_file=100", "--records-per-file=100"])
def test_flags_with_underscores_and_dashes(run: Run, tmp_path: Path, flag: str) -> None:
    assert run("make", "iris", "--output", "x", flag)[0] == 0
    assert [path.name for path in sorted((tmp_path / "x" / "train").iterdir())] == [
        "iris-00000.csv",
        "iris-00001.csv",
    ]


@pytest.mark.parametrize("name", ["criteo-like", "criteo_like"])
def test_names_with_underscores_and_dashes(run: Run, tmp_path: Path, name: str) -> None:
    assert run("make", name, "--rows=20", "--test_rows=0", "--format=parquet")[0] == 0
    assert [path.name for path in (tmp_path / "data" / "criteo-like").iterdir()] == ["train"]


def test_data_that_is_there_is_kept(run: Run) -> None:
    assert run("make", "iris")[0] == 0
    code, _, errors = run("make", "iris")
    assert code == 2
    assert "data/iris exists and is not empty" in errors
    assert "--overwrite" in errors
    assert run("make", "iris", "--overwrite")[0] == 0


def test_a_wrong_name(run: Run) -> None:
    code, _, errors = run("make", "digit")
    assert code == 2
    assert "Did you mean digits?" in errors


def test_mnist_needs_its_files(run: Run) -> None:
    code, _, errors = run("make", "mnist", "--source", "nowhere")
    assert code == 2
    assert "train-images-idx3-ubyte" in errors


def test_convert_and_describe(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a;b\n1;x\n2;y\n3\n")
    params = "--data_reader_params=sep=semicolon"
    code, output, _ = run("convert", "x.csv", "x.parquet", "--max_bad_records=1", params)
    assert code == 0
    assert "left out: samples [2, 3) at x.csv, byte 12: the row has 1 columns, not 2" in output
    assert "x.parquet: 2 samples" in output
    code, output, _ = run("describe", "x.parquet")
    assert code == 0
    assert "x.parquet: parquet, 1 file, 2 samples" in output
    assert "a       int64  1" in output
    assert "record 1: a=2, b=y" in output


def test_describe_checks(run: Run, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1,2\n3\n")
    code, output, _ = run("describe", "x.csv", "--check")
    assert code == 1
    assert "1 samples are right, 1 are corrupt" in output
    assert "corrupt: samples [1, 2) at x.csv, byte 4" in output
    code, output, _ = run("describe", "x.csv", "--json", "--check")
    assert code == 1
    document = json.loads(output)
    assert document["bad"] == [
        {"start": 1, "end": 2, "where": "x.csv, byte 4", "reason": "the row has 1 columns, not 2"}
    ]


def test_a_missing_path_and_a_wrong_parameter(run: Run, tmp_path: Path) -> None:
    code, _, errors = run("describe", "nowhere")
    assert code == 2
    assert "There is no file or folder nowhere" in errors
    (tmp_path / "x.csv").write_text("1,2\n")
    assert "Did you mean sep?" in run("describe", "x.csv", "--data_reader_params=sepp=tab")[2]
    assert "--data_reader_params" in run("describe", "x.csv", "--data_reader_params=sep")[2]


def test_on_a_terminal_there_is_a_bar_and_a_table(tmp_path: Path) -> None:
    main_end, terminal = pty.openpty()
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path]),
        "TERM": "xterm",
        "COLUMNS": "80",
    }
    (tmp_path / "x.csv").write_text("a,b[0]\n1,2\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "elasticdl.cli.main", "data", "describe", "x.csv", "--check"],
        cwd=tmp_path,
        env=environment,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    output = b""
    while True:
        try:
            block = os.read(main_end, 4096)
        except OSError:
            break
        if not block:
            break
        output += block
    os.close(main_end)
    assert process.wait() == 0
    shown = output.decode()
    assert "checking" in shown
    assert "└────" in shown
