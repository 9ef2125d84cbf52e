"""Damaged files: data sets of every format and compression, checkpoints, job files, TrainingJobs."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import os
import random
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import cramjam
import numpy as np
import yaml

from elasticai_api.errors import RecordIOError
from elasticai_api.io.recordio_reader import RecordIOReader
from elasticdl.data.dataset import open_reader
from elasticdl.data.dataset_writer import file_writer
from elasticdl.data.reader import BadRecords
from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec, from_yaml, to_yaml
from elasticdl.jobs.training_job.parsing import InvalidTrainingJob, parse_training_job
from elasticdl.ps.checkpoint.array_file import NamedArrays, read_array_file, write_array_file
from tests.fuzz.callers import Memory
from tests.fuzz.mutations import mutated, mutated_json, mutated_text

Round = Callable[[random.Random], None]
Damage = Callable[[bytes, random.Random], bytes]
# What nonsense may be answered with.
EXPECTED = (UserError, BadRecords, RecordIOError, InvalidTrainingJob)
# Of a damaged file so many samples are read at most.
_SAMPLES = 200


@contextlib.contextmanager
def _in_a_folder(
    make: Callable[[Path], bytes], name: str, read: Callable[[Path], None], damage: Damage
) -> Iterator[Round]:
    with tempfile.TemporaryDirectory() as folder:
        original = Path(folder) / name
        original.parent.mkdir(parents=True, exist_ok=True)
        good = make(original)
        numbers = iter(range(2**62))
        memory = Memory()

        def one_round(source: random.Random) -> None:
            # Indexes and plain copies are cached by the name of a file.
            place = Path(folder) / str(next(numbers))
            place.mkdir()
            file = place / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(damage(good, source))
            try:
                with (
                    contextlib.suppress(*EXPECTED),
                    mock.patch.dict(os.environ, ELASTICDL_CACHE=folder + "/cache"),
                ):
                    read(file)
            finally:
                shutil.rmtree(place)
                shutil.rmtree(Path(folder) / "cache", ignore_errors=True)
            memory.check()

        yield one_round


def _read_samples(file: Path) -> None:
    reader = open_reader(str(file))
    for _ in reader.read(0, min(len(reader), _SAMPLES)):
        pass


def _read_images(file: Path) -> None:
    _read_samples(file.parent.parent)


def _read_in_a_program(file: Path) -> None:
    reader = RecordIOReader(file)
    for _ in reader.read_records(0, min(len(reader), _SAMPLES)):
        pass


def _records(form: str, compression: str = "") -> Callable[[Path], bytes]:
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
        writer = file_writer(form, path, compression=compression, **options)
        for row in rows:
            writer.write(row)
        writer.close()
        return path.read_bytes()

    return make


def _idx(path: Path) -> bytes:
    return struct.pack(">4B3I", 0, 0, 8, 3, 5, 4, 4) + bytes(80)


def _image(path: Path) -> bytes:
    # The signature and the first chunk of a PNG: what is behind is the program's.
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4s2I5B", 13, b"IHDR", 4, 4, 8, 0, 0, 0, 0) + bytes(40)


def _compressed(form: str, compress: Callable[[bytes], bytes]) -> Callable[[Path], bytes]:
    make = _records(form)
    return lambda path: compress(make(path.with_suffix("")))


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


def _training_job(path: Path) -> bytes:
    source = Path(__file__).parents[2] / "example" / "examplejob.yaml"
    return json.dumps(yaml.safe_load(source.read_text()), default=str).encode()


def _read_training_job(file: Path) -> None:
    document = json.loads(file.read_text())
    if isinstance(document, dict):
        parse_training_job(document)


def _target(
    make: Callable[[Path], bytes], name: str, read: Callable[[Path], None], damage: Damage = mutated
) -> Callable[[], AbstractContextManager[Round]]:
    return lambda: _in_a_folder(make, name, read, damage)


TARGETS: dict[str, Callable[[], AbstractContextManager[Round]]] = {
    "csv": _target(_records("csv"), "x.csv", _read_samples),
    "tfrecord": _target(_records("tfrecord"), "x.tfrecord", _read_samples),
    "recordio": _target(_records("recordio"), "x.recordio", _read_samples),
    "recordio-gzip": _target(_records("recordio", "gzip"), "x.recordio", _read_samples),
    "recordio-program": _target(_records("recordio"), "x.recordio", _read_in_a_program),
    "csv.gz": _target(_compressed("csv", gzip.compress), "x.csv.gz", _read_samples),
    "tfrecord.bz2": _target(_compressed("tfrecord", bz2.compress), "x.tfrecord.bz2", _read_samples),
    "recordio.xz": _target(_compressed("recordio", lzma.compress), "x.recordio.xz", _read_samples),
    "csv.zst": _target(
        _compressed("csv", lambda data: bytes(cramjam.zstd.compress(data))), "x.csv.zst", _read_samples
    ),
    "images": _target(_image, "cats/x.png", _read_images),
    "parquet": _target(_records("parquet"), "x.parquet", _read_samples),
    "idx": _target(_idx, "images-idx3-ubyte", _read_samples),
    "idx.gz": _target(lambda path: gzip.compress(_idx(path)), "images-idx3-ubyte.gz", _read_samples),
    "checkpoint": _target(_checkpoint, "worker.edl", lambda file: void(read_array_file(file))),
    "job-file": _target(_job_file, "job.yaml", _read_job),
    "job-file-text": _target(_job_file, "job.yaml", _read_job, mutated_text),
    "training-job": _target(_training_job, "job.json", _read_training_job, mutated_json),
}


def void(_: object) -> None:
    """Drops a result."""
