"""Damaged files: data sets of every format, checkpoints, job files."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.data.dataset import open_reader
from elasticdl.data.dataset_writer import file_writer
from elasticdl.data.reader import BadRecords
from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec, from_yaml, to_yaml
from elasticdl.ps.checkpoint.array_file import NamedArrays, read_array_file, write_array_file
from tests.fuzz.mutations import mutated

Round = Callable[[random.Random], None]
# What nonsense may be answered with.
EXPECTED = (UserError, BadRecords)
# Of a damaged file so many samples are read at most.
_SAMPLES = 200


@contextlib.contextmanager
def _in_a_folder(make: Callable[[Path], bytes], name: str, read: Callable[[Path], None]) -> Iterator[Round]:
    with tempfile.TemporaryDirectory() as folder:
        good = make(Path(folder) / name)
        numbers = iter(range(2**62))

        def one_round(source: random.Random) -> None:
            # Indexes are cached by the name of a file.
            place = Path(folder) / str(next(numbers))
            place.mkdir()
            file = place / name
            file.write_bytes(mutated(good, source))
            try:
                with contextlib.suppress(*EXPECTED):
                    read(file)
            finally:
                file.unlink()
                for rest in place.rglob("*"):
                    rest.unlink()
                place.rmdir()

        yield one_round


def _read_samples(file: Path) -> None:
    reader = open_reader(str(file))
    for _ in reader.read(0, min(len(reader), _SAMPLES)):
        pass


def _records(form: str) -> Callable[[Path], bytes]:
    def make(path: Path) -> bytes:
        rows: list[Any] = [[str(number), f"name {number}", number / 3] for number in range(40)]
        options: dict[str, Any] = {}
        if form != "csv":
            rows = [{"number": np.arange(3) + row, "name": f"name {row}".encode()} for row in range(40)]
        else:
            options["header"] = ["a", "b", "c"]
        if form == "parquet":
            import pyarrow

            rows = [{"number": row, "name": f"name {row}"} for row in range(40)]
            options["schema"] = pyarrow.schema([("number", pyarrow.int64()), ("name", pyarrow.string())])
        writer = file_writer(form, path, **options)
        for row in rows:
            writer.write(row)
        writer.close()
        return path.read_bytes()

    return make


def _idx(path: Path) -> bytes:
    return struct.pack(">4B3I", 0, 0, 8, 3, 5, 4, 4) + bytes(80)


def _checkpoint(path: Path) -> bytes:
    arrays = {"a": np.arange(12.0).reshape(3, 4), "b": np.ones(3, np.float32)}
    write_array_file(path, NamedArrays(attributes={"step": 3}, groups={"trainable": arrays, "state": {}}))
    return path.read_bytes()


def _job_file(path: Path) -> bytes:
    spec = JobSpec.build(
        model_zoo="zoo",
        model_def="a.b.c",
        training_data="d",
        num_workers=2,
        num_ps=1,
        envs={"A": "1"},
        worker_resource_request="cpu=1,memory=1Gi",
    )
    return to_yaml(spec).encode()


def _read_job(file: Path) -> None:
    from_yaml(file.read_bytes().decode(errors="replace"))


def _target(
    make: Callable[[Path], bytes], name: str, read: Callable[[Path], None]
) -> Callable[[], AbstractContextManager[Round]]:
    return lambda: _in_a_folder(make, name, read)


TARGETS: dict[str, Callable[[], AbstractContextManager[Round]]] = {
    "csv": _target(_records("csv"), "x.csv", _read_samples),
    "tfrecord": _target(_records("tfrecord"), "x.tfrecord", _read_samples),
    "recordio": _target(_records("recordio"), "x.recordio", _read_samples),
    "parquet": _target(_records("parquet"), "x.parquet", _read_samples),
    "idx": _target(_idx, "images-idx3-ubyte", _read_samples),
    "idx.gz": _target(lambda path: gzip.compress(_idx(path)), "images-idx3-ubyte.gz", _read_samples),
    "checkpoint": _target(_checkpoint, "worker.edl", lambda file: void(read_array_file(file))),
    "job-file": _target(_job_file, "job.yaml", _read_job),
}


def void(_: object) -> None:
    """Drops a result."""
