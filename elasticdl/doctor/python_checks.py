"""Python itself, the compiled part of ElasticDL, the compiler for it, and the frameworks.

A framework that is installed may still fail to import, for example beside a numpy that is too new for it. So each
is imported, in a process of its own: they take seconds, and two of them in one process disturb each other.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version

from elasticdl.doctor.finding import Finding, Level
from elasticdl.extras import install_command

OLDEST, NEWEST = (3, 10), (3, 12)
# Extra, module, distributions that have the module.
FRAMEWORKS = (
    ("keras", "tensorflow", ("tensorflow-cpu", "tensorflow")),
    ("torch", "torch", ("torch",)),
    ("paddle", "paddle", ("paddlepaddle", "paddlepaddle-gpu")),
)
# TensorFlow takes ten seconds to import on a machine that is busy.
_IMPORT_TIMEOUT_SECONDS = 120.0
_COMPILERS = ("c++", "g++", "clang++")
_SHOWN_LENGTH = 300


def check_python(found: Sequence[int] = sys.version_info[:3]) -> Finding:
    shown = ".".join(map(str, found))
    if OLDEST <= tuple(found[:2]) <= NEWEST:
        return Finding(subject="Python", level=Level.OK, text=f"{shown} ({sys.executable})")
    newest = ".".join(map(str, NEWEST))
    return Finding(
        subject="Python",
        level=Level.ERROR,
        text=f"{shown} is not supported: 3.10 to {newest} are.",
        fix=f"python{newest} -m venv .venv && .venv/bin/pip install . (in the source tree of elasticdl)",
    )


def check_kernels(module: str = "elasticdl.ps._kernels") -> Finding:
    """Parameter servers do not start without them."""
    subject = "compiled kernels"
    done = _import(module)
    if done is None:
        return Finding(subject=subject, level=Level.OK, text="built for this Python")
    return Finding(
        subject=subject,
        level=Level.ERROR,
        text=f"They cannot be loaded: {done}",
        fix="pip install --force-reinstall --no-deps . (in the source tree of elasticdl)",
    )


def check_compiler(which: Callable[[str], str | None] = shutil.which) -> Finding:
    """Checks for a compiler, which only an installation from sources needs."""
    subject = "C++ compiler"
    named = os.environ.get("CXX", "").split()[:1]
    found = next((path for name in (*named, *_COMPILERS) if (path := which(name))), None)
    if found is not None:
        return Finding(subject=subject, level=Level.OK, text=found)
    return Finding(
        subject=subject,
        level=Level.ABSENT,
        text="There is none. Installing elasticdl from its sources then fetches one, which takes minutes.",
        fix="apt-get install g++ (Debian, Ubuntu), dnf install gcc-c++ (Fedora), xcode-select --install (macOS)",
    )


def check_frameworks(frameworks: Sequence[tuple[str, str, Sequence[str]]] = FRAMEWORKS) -> list[Finding]:
    """All at the same time."""
    with ThreadPoolExecutor(len(frameworks)) as pool:
        found = list(pool.map(lambda one: _check_framework(*one), frameworks))
    if all(one.level is Level.ABSENT for one in found):
        commands = " or ".join(install_command(extra) for extra, _, _ in frameworks)
        found.append(
            Finding(
                subject="frameworks",
                level=Level.WARNING,
                text="None is installed. Job commands run without one, model definitions do not.",
                fix=commands,
            )
        )
    return found


def _check_framework(extra: str, module: str, distributions: Sequence[str]) -> Finding:
    if importlib.util.find_spec(module) is None:
        return Finding(subject=module, level=Level.ABSENT, text="not installed", fix=install_command(extra))
    problem = _import(module)
    if problem is None:
        return Finding(subject=module, level=Level.OK, text=_version(distributions))
    return Finding(
        subject=module,
        level=Level.ERROR,
        text=f"{_version(distributions)} is installed and cannot be imported: {problem}",
        fix=f"{install_command(extra)} --force-reinstall",
    )


def _version(distributions: Sequence[str]) -> str:
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "unknown version"


def _import(module: str) -> str | None:
    """Returns the last line of what a Python says that cannot import the module; None if it can."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"import {module}"],
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=_IMPORT_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"its import takes more than {_IMPORT_TIMEOUT_SECONDS:.0f} s"
    if done.returncode == 0:
        return None
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    said = lines[-1] if lines else f"Python ended with {done.returncode}"
    return said[:_SHOWN_LENGTH]
