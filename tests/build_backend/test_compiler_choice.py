"""Where a machine has no C++ compiler the build asks for one that pip can fetch, and uses it; and only there.

Whether that one compiles what is in native/ is shown by `make kernels-by-zig`, which takes minutes.
"""

import importlib
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

TREE = Path(__file__).parents[2]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """In a tree where nothing is built yet, on a machine without a compiler."""
    # Fetched for builds alone, so it is not in this environment.
    library = types.ModuleType("scikit_build_core")
    needed = types.SimpleNamespace(
        get_requires_for_build_wheel=lambda settings: ["cmake"],
        get_requires_for_build_sdist=None,
        build_sdist=None,
        prepare_metadata_for_build_wheel=None,
        prepare_metadata_for_build_editable=None,
    )
    monkeypatch.setattr(library, "build", needed, raising=False)
    monkeypatch.setitem(sys.modules, "scikit_build_core", library)
    monkeypatch.syspath_prepend(TREE / "build_backend")
    monkeypatch.delitem(sys.modules, "kernels_backend", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module("kernels_backend")
    sys.modules.pop("kernels_backend", None)


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "get_requires_for_build_editable"])
def test_build_without_compiler_requires_zig(backend: Any, hook: str) -> None:
    assert getattr(backend, hook)() == ["cmake", "ziglang>=0.13"]


@pytest.mark.parametrize("name", ["c++", "g++", "clang++"])
def test_not_where_there_is_one(backend: Any, tmp_path: Path, name: str) -> None:
    program(tmp_path / name, "exit 0")
    assert backend.get_requires_for_build_wheel() == ["cmake"]


def test_named_compiler_requires_no_zig(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/opt/another/c++")
    assert backend.get_requires_for_build_wheel() == ["cmake"]


def test_build_without_compiler_uses_zig(
    backend: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """For any processor of the kind, and only while the build lasts."""
    package = tmp_path / "a folder" / "ziglang"
    package.parent.mkdir()
    program(package / "zig", 'printf "%s\\n" "$@"')
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(package.parent)
    before = dict(os.environ)
    with backend._compiler():
        compiler, options = os.environ["CXX"], os.environ["CMAKE_ARGS"].split()
        given = subprocess.run(
            [compiler, "-c", "a file.cpp"], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        archiver = next(option for option in options if option.startswith("-DCMAKE_AR=")).partition("=")[2]
        archived = subprocess.run([archiver, "qc", "a.a"], capture_output=True, text=True, check=True).stdout
    sys.modules.pop("ziglang", None)
    assert given == ["c++", "-mcpu=baseline", "-c", "a file.cpp"]
    assert archived.split() == ["ar", "qc", "a.a"]
    assert dict(os.environ) == before
    assert not Path(compiler).exists()


def test_the_machines_own_is_left_alone(backend: Any, tmp_path: Path) -> None:
    program(tmp_path / "g++", "exit 0")
    before = dict(os.environ)
    with backend._compiler():
        assert dict(os.environ) == before
