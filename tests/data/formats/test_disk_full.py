"""A disk that is full while data is written: the path is named, and nothing is left half written."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.data.files.atomic_file import disk_errors
from elasticdl.errors import UserError

# The limit on the size of a file meets writers where a full disk would: in the middle of writing.
PROGRAM = """
import resource, sys
from pathlib import Path
import pyarrow, pyarrow.parquet, pyarrow.csv
from elasticdl.data.conversion import convert
from elasticdl.data.generators.criteo import make_criteo_like
from elasticdl.data.dataset import open_reader
from elasticdl.data.formats.tfrecord_frames import TFRecordWriter, frame
from elasticdl.errors import UserError

# A limit on the size of files would truncate what Python caches of a module, for good.
sys.dont_write_bytecode = True
work = Path(sys.argv[1])
reader = open_reader(str(work / "source.csv"))
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))

def refused(path, action):
    try:
        action()
    except UserError as error:
        assert str(path) in error.message and "no room" in error.message, error
    else:
        raise AssertionError(path)

for name in ("x.recordio", "x.tfrecord", "x.csv", "x.parquet"):
    compression = {"x.csv": "gzip", "x.parquet": "zstd"}.get(name, "")
    refused(work / name, lambda: convert(reader, work / name, compression=compression))
for name in ("recordio", "parquet"):
    refused(work / name, lambda: convert(reader, work / name, format=name, records_per_file=3000))
for name in ("text", "parquet"):
    refused(work / "criteo", lambda: make_criteo_like(work / "criteo", rows=1000, format=name))

events = TFRecordWriter(work / "events")
events.write(b"x" * 15_000)
events.flush()
events.write(b"y" * 15_000)
refused(work / "events", events.flush)
assert (work / "events").read_bytes() == frame(b"x" * 15_000)
print("done")
"""


def test_writers_of_all_formats(tmp_path: Path, python: Callable[..., subprocess.Popen[str]]) -> None:
    with (tmp_path / "source.csv").open("w") as file:
        # Digits without a pattern, so that compressing does not make room.
        file.writelines(
            f"{pow(7, number, 2**61 - 1)},{pow(5, number, 2**61 - 1)}\n" for number in range(5000)
        )
    process = python(PROGRAM, str(tmp_path))
    output, errors = process.communicate(timeout=120)
    assert (output, process.returncode) == ("done\n", 0), errors
    assert errors == ""
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == [".source.csv.elasticdl-index", "events", "source.csv"]


def test_a_disk_without_room(tmp_path: Path) -> None:
    with (
        pytest.raises(
            UserError, match=r"Cannot write the-path: there is no room .No space left on device"
        ) as error,
        disk_errors("the-path"),
        open("/dev/full", "wb", buffering=0) as full,
    ):
        full.write(b"x")
    assert "another disk" in error.value.hint


def test_a_cache_folder_without_room(tmp_path: Path, python: Callable[..., subprocess.Popen[str]]) -> None:
    import gzip

    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"1,2\n" * 100_000))
    process = python(
        "import resource, sys; from elasticdl.data.dataset import open_reader\n"
        "sys.dont_write_bytecode = True\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))\n"
        "open_reader(sys.argv[1])",
        str(tmp_path / "x.csv.gz"),
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "no room" in errors
    assert "ELASTICDL_CACHE" in errors


def test_a_folder_that_may_not_be_written(tmp_path: Path) -> None:
    from elasticdl.data.formats.recordio import RecordIOWriter

    with pytest.raises(UserError, match=r"Cannot write /proc/x\.recordio"):
        RecordIOWriter("/proc/x.recordio")
