"""Data sets in temporary folders, damage to them, and other processes to read them in."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.data.dataset import open_reader
from elasticdl.data.formats.recordio import RecordIOWriter
from elasticdl.data.formats.tfrecord_frames import frame
from elasticdl.data.integrity import records_and_damage
from elasticdl.data.reader import BadRange
from elasticdl.errors import UserError

ReadThrough = Callable[..., tuple[list[Any], list[BadRange]]]


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of the tests' own. For the session, so that property tests may use it."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("ELASTICDL_CACHE")
    os.environ["ELASTICDL_CACHE"] = str(folder)
    yield folder
    if before is None:
        del os.environ["ELASTICDL_CACHE"]
    else:
        os.environ["ELASTICDL_CACHE"] = before


@pytest.fixture(scope="session")
def fresh() -> Iterator[Callable[[str], Path]]:
    """A path in a new folder each time it is called; property tests call it for every example."""
    with tempfile.TemporaryDirectory() as root:
        yield lambda name: Path(tempfile.mkdtemp(dir=root)) / name


@pytest.fixture(scope="session")
def write_recordio() -> Callable[..., Path]:
    def write(path: Path, records: Iterable[bytes], **settings: Any) -> Path:
        with RecordIOWriter(path, **settings) as writer:
            for record in records:
                writer.write(record)
        return path

    return write


@pytest.fixture(scope="session")
def write_tfrecord() -> Callable[[Path, Iterable[bytes]], Path]:
    def write(path: Path, records: Iterable[bytes]) -> Path:
        path.write_bytes(b"".join(map(frame, records)))
        return path

    return write


@pytest.fixture(scope="session")
def damage() -> Callable[..., Path]:
    """Changes the byte at an offset."""

    def change(path: Path, offset: int, flip: int = 0xFF) -> Path:
        content = bytearray(path.read_bytes())
        content[offset] ^= flip
        path.write_bytes(content)
        return path

    return change


@pytest.fixture(scope="session")
def read_through() -> ReadThrough:
    """All records of a path that can be read, and the ranges that cannot."""

    def read(path: Path, params: dict[str, str] | None = None) -> tuple[list[Any], list[BadRange]]:
        good: list[Any] = []
        bad: list[BadRange] = []
        for found in records_and_damage(open_reader(str(path), params)):
            if isinstance(found, BadRange):
                bad.append(found)
            else:
                good.append(found)
        return good, bad

    return read


@pytest.fixture(scope="session")
def refused() -> Callable[..., str]:
    """Returns the error message for a path that cannot be opened."""

    def try_opening(path: Path | str, params: dict[str, str] | None = None) -> str:
        with pytest.raises(UserError) as error:
            open_reader(str(path), params)
        return str(error.value)

    return try_opening


@pytest.fixture(scope="session")
def python() -> Callable[..., subprocess.Popen[str]]:
    """Starts a program in a process of its own, which finds the same modules as this one."""

    def start(program: str, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))}
        return subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


_OTHER_USER = 65534


@pytest.fixture(scope="session")
def as_other_user() -> Callable[[Callable[[], None]], None]:
    """Runs something in a process without root's right to read and write everywhere, and fails as it does."""

    def run(work: Callable[[], None]) -> None:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setgid(_OTHER_USER)
                    os.setuid(_OTHER_USER)
                work()
                code = 0
            except BaseException:  # noqa: BLE001 - it is printed, and fails the test
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert status == 0

    return run
