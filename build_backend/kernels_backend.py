"""What pip calls to build this project: scikit-build-core, with two things added.

Where no C++ compiler is found, the one of the `ziglang` package is asked for and used, so that nothing but pip is
needed. And an editable install leaves the extension in the source tree, beside the modules that import it: whoever
runs the tree, by whatever path, finds it there.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import sys
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

_EXTENSION = "elasticdl/ps/_kernels."
_ZIG = "ziglang>=0.13"

Settings = dict[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    needed = list(build.get_requires_for_build_wheel(config_settings))
    return needed if _has_compiler() else [*needed, _ZIG]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return get_requires_for_build_wheel(config_settings)


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    with _compiler():
        return build.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(folder, config_settings)
        with zipfile.ZipFile(Path(folder) / wheel) as archive:
            for name in archive.namelist():
                if name.startswith(_EXTENSION) and not name.endswith(".pyi"):
                    _put(archive.read(name), Path(name))
    # pyproject.toml says that this one compiles nothing.
    return build.build_editable(wheel_directory, config_settings, metadata_directory)


def _put(content: bytes, path: Path) -> None:
    """In place of an older one, which a running process may have loaded."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_bytes(content)
    fresh.chmod(0o755)
    os.replace(fresh, path)


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
            # Left alone it compiles for the processor that it runs on, and the C++ library anew for CMake's first
            # questions, which are asked without optimization.
            always = " -mcpu=baseline -O3" if name == "c++" else ""
            path.write_text(f'#!/bin/sh\nexec {shlex.quote(str(zig))} {name}{always} "$@"\n')
            path.chmod(path.stat().st_mode | stat.S_IXUSR)
        os.environ["CXX"] = str(tools["c++"])
        os.environ["CMAKE_ARGS"] = " ".join(
            [
                os.environ.get("CMAKE_ARGS", ""),
                f"-DCMAKE_AR={tools['ar']}",
                f"-DCMAKE_RANLIB={tools['ranlib']}",
            ]
        )
        print(f"No C++ compiler was found; {zig} compiles.", file=sys.stderr)
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
