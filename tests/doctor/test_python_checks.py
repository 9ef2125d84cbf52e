"""Python, compiled kernels, compiler and frameworks: each failure is that of a real interpreter, path or package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from elasticdl.doctor.finding import Level
from elasticdl.doctor.python_checks import (
    check_compiler,
    check_frameworks,
    check_kernels,
    check_python,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that this process and its children import from."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("found", "level"),
    [((3, 9, 18), Level.ERROR), ((3, 10, 0), Level.OK), ((3, 12, 9), Level.OK), ((3, 13, 0), Level.ERROR)],
)
def test_python_outside_of_the_range_is_an_error(found: tuple[int, ...], level: Level) -> None:
    finding = check_python(found)
    assert finding.level is level
    assert bool(finding.fix) == (level is Level.ERROR)


def test_running_python_is_supported() -> None:
    assert check_python().text.endswith(f"({sys.executable})")


def test_kernels_of_another_python_cannot_be_loaded(folder: Path) -> None:
    (folder / f"foreign.cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu.so").write_bytes(
        b"no"
    )
    (folder / "foreign.abi3.so").write_bytes(b"no")
    finding = check_kernels("foreign")
    assert finding.level is Level.ERROR
    assert "ImportError" in finding.text
    assert finding.fix.startswith("pip install --force-reinstall")


def test_no_compiler_on_the_path_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    finding = check_compiler()
    assert finding.level is Level.ABSENT
    assert "apt-get install g++" in finding.fix
    compiler = tmp_path / "my-c++"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", "my-c++ -O1")
    assert check_compiler().text == str(compiler)


def test_frameworks_are_imported_one_by_one(folder: Path) -> None:
    (folder / "good_framework.py").write_text("")
    (folder / "bad_framework.py").write_text("raise ImportError('numpy.core.multiarray failed to import')")
    good, bad, absent = check_frameworks(
        [
            ("torch", "good_framework", ("pytest",)),
            ("keras", "bad_framework", ("pytest",)),
            ("paddle", "no_framework", ()),
        ]
    )
    assert (good.level, good.text) == (Level.OK, pytest.__version__)
    assert bad.level is Level.ERROR
    assert "cannot be imported: ImportError: numpy.core.multiarray failed to import" in bad.text
    assert bad.fix.startswith("pip install")
    assert (absent.level, absent.text) == (Level.ABSENT, "not installed")
    assert "paddlepaddle" in absent.fix


def test_no_framework_at_all_is_a_warning() -> None:
    *_, last = check_frameworks([("torch", "no_framework", ())])
    assert last.level is Level.WARNING
    assert last.fix == "pip install 'torch>=2.2'"


def test_framework_that_kills_its_process_is_an_error(folder: Path) -> None:
    (folder / "crashing_framework.py").write_text("import os; os.abort()")
    (finding,) = check_frameworks([("torch", "crashing_framework", ())])
    assert finding.level is Level.ERROR
    assert "Python ended with -6" in finding.text
