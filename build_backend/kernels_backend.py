"""What pip calls to build this project: scikit-build-core, with four things added.

Where no C++ compiler is found, the one of the `ziglang` package is asked for and used, so that nothing but pip is
needed. An editable install leaves the extension in the source tree, beside the modules that import it: a program
that runs the tree, by whatever path, finds it there. One of the same sources and for the same Python is used
again: installing a tree into a second environment compiles nothing. And it tells Python where the tree is, no more: by
itself scikit-build-core also puts a hook before all other imports, so that PYTHONPATH could not name another package.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import shlex
import shutil
import stat
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scikit_build_core import build

build_sdist = build.build_sdist
get_requires_for_build_sdist = build.get_requires_for_build_sdist
prepare_metadata_for_build_wheel = build.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build.prepare_metadata_for_build_editable

# pip calls from the root of the source tree.
_EXTENSION = Path("elasticdl", "ps", "_kernels" + str(sysconfig.get_config_var("EXT_SUFFIX")))
# Of what it was built, and what was built.
_NOTE = _EXTENSION.with_name(f".{_EXTENSION.name}.built")
_SOURCES = ("CMakeLists.txt", "build_backend/*.py", "native/*")
_OPTIONS = ("CXX", "CPPFLAGS", "CXXFLAGS", "LDFLAGS", "CMAKE_ARGS")
_ZIG = "ziglang>=0.13"
# Left alone it compiles for the processor that it runs on.
_ALWAYS = {"c++": " -mcpu=baseline", "ar": "", "ranlib": ""}
# To link takes it a minute the first time, for it compiles the C++ library for that, and programs want another one than
# extensions. So what CMake asks a compiler at first is answered without.
_QUESTION = 'case " $* " in *" CMakeCXXCompilerId.cpp "*) set -- "$@" -c;; esac\n'

Settings = dict[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    needed = list(build.get_requires_for_build_wheel(config_settings))
    return needed if _is_built(config_settings) or _has_compiler() else [*needed, _ZIG]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return [] if _is_built(config_settings) else get_requires_for_build_wheel(config_settings)


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    if _is_built(config_settings):
        print(f"{_EXTENSION} is of these sources and is used again.", file=sys.stderr)
        settings = {**(config_settings or {}), "cmake.define.ELASTICDL_BUILT": str(_EXTENSION.resolve())}
        return str(build.build_wheel(wheel_directory, settings, metadata_directory))
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        raise SystemExit(
            f"The headers of this Python ({sys.executable}) are missing, and a part of elasticdl has to be "
            "compiled. Where Python comes from Debian or Ubuntu they are in the package python3-dev; a Python from "
            "python.org, pyenv, uv or conda has them."
        )
    with _compiler():
        return str(build.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    if not _is_built(config_settings):
        with tempfile.TemporaryDirectory() as folder:
            built = build_wheel(folder, config_settings)
            with zipfile.ZipFile(Path(folder) / built) as archive:
                content = archive.read(_EXTENSION.as_posix())
        _put(content, _EXTENSION)
        note = f"{_state_of_sources(config_settings)}\n{hashlib.sha256(content).hexdigest()}\n"
        _put(note.encode(), _NOTE)
    # pyproject.toml says that this one compiles nothing.
    wheel: str = build.build_editable(wheel_directory, config_settings, metadata_directory)
    _remove_hook(Path(wheel_directory) / wheel)
    return wheel


def _remove_hook(wheel: Path) -> None:
    """Removes the import hook of an editable installation: only the path of the tree remains."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    path = next(name for name in files if name.endswith(".pth"))
    files[path] = b"".join(line for line in files[path].splitlines(True) if not line.startswith(b"import "))
    files.pop(path.removesuffix(".pth") + ".py", None)
    record = next(name for name in files if name.endswith(".dist-info/RECORD"))
    files[record] = "".join(f"{_record_line(name, content)}\n" for name, content in files.items()).encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def _record_line(name: str, content: bytes) -> str:
    if name.endswith("/RECORD"):
        return f"{name},,"
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"


# -- what is there already -----------------------------------------------------------------------------------------


def _is_built(settings: Settings) -> bool:
    if not _NOTE.exists() or not _EXTENSION.exists():
        return False
    found = hashlib.sha256(_EXTENSION.read_bytes()).hexdigest()
    return _NOTE.read_text().split() == [_state_of_sources(settings), found]


def _state_of_sources(settings: Settings) -> str:
    """A digest of all that decides what the extension does. The name of the extension tells Python's version."""
    state = hashlib.sha256()
    for pattern in _SOURCES:
        for path in sorted(Path().glob(pattern)):
            if path.is_file():
                state.update(f"{path.as_posix()}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    given = {name: os.environ.get(name, "") for name in _OPTIONS}
    state.update(repr((sorted(given.items()), sorted((settings or {}).items()))).encode())
    return state.hexdigest()


def _put(content: bytes, path: Path) -> None:
    """Writes a file in place of an older one, which a running process may have loaded."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.chmod(0o755)
    os.replace(fresh, path)


# -- compilers -----------------------------------------------------------------------------------------------------


def _has_compiler() -> bool:
    named = os.environ.get("CXX")
    return bool(named) or any(shutil.which(name) for name in ("c++", "g++", "clang++"))


@contextlib.contextmanager
def _compiler() -> Iterator[None]:
    if _has_compiler():
        yield
        return
    import ziglang

    zig = Path(ziglang.__file__).parent / "zig"
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        tools = {name: Path(folder) / name for name in ("c++", "ar", "ranlib")}
        for name, path in tools.items():
            path.write_text(
                f'#!/bin/sh\n{_QUESTION}exec {shlex.quote(str(zig))} {name}{_ALWAYS[name]} "$@"\n'
            )
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        os.environ["CXX"] = str(tools["c++"])
        os.environ["CMAKE_ARGS"] = " ".join(
            [
                os.environ.get("CMAKE_ARGS", ""),
                f"-DCMAKE_AR={tools['ar']}",
                f"-DCMAKE_RANLIB={tools['ranlib']}",
                "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY",
            ]
        )
        print(f"No C++ compiler was found; {zig} compiles.", file=sys.stderr)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
