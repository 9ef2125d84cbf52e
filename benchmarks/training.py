"""The runs that are compared: a job of one worker as a user starts it, and a plain script of the same framework."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from benchmarks import stamps
from benchmarks.processes import elasticdl, finish, running, tail, wait_until
from elasticdl.data.dataset import open_reader
from elasticdl.data.example import encode_example
from elasticdl.data.formats.recordio import RecordIOWriter

Framework = Literal["keras", "torch", "paddle"]
FRAMEWORKS: tuple[Framework, ...] = ("keras", "torch")
BATCH = 64


@dataclass(frozen=True, kw_only=True)
class Run:
    """One process that trained."""

    started: float
    stamps: stamps.Stamps

    @property
    def first_batch_seconds(self) -> float:
        """From the command to the end of the first batch."""
        return self.stamps.ends[0].seconds - self.started


@contextlib.contextmanager
def images(batches: int, *, files: int = 1) -> Iterator[Path]:
    """Writes RecordIO files, each with so many batches of images like MNIST's: 28×28, mostly background."""
    random = np.random.default_rng(0)
    drawn = random.random((256, 28, 28), dtype=np.float32) * (random.random((256, 28, 28)) < 0.2)
    records = [
        encode_example({"image": image.astype(np.float32), "label": number % 10})
        for number, image in enumerate(drawn)
    ]
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "images-0.recordio"
        with RecordIOWriter(first) as writer:
            for number in range(batches * BATCH):
                writer.write(records[number % len(records)])
        for number in range(1, files):
            # The content of the images does not affect the measurement.
            os.link(first, Path(folder) / f"images-{number}.recordio")
        # So that neither side has to create the index.
        open_reader(folder)
        yield Path(folder)


def plain_command(framework: Framework, data: Path, *, readers: int = 0) -> list[str]:
    return [sys.executable, *plain_arguments(framework, str(data), readers=readers)]


def plain_arguments(framework: Framework, data: str, *, readers: int = 0) -> list[str]:
    """Returns the import time of a framework in any interpreter."""
    more = [] if framework == "keras" else [str(readers)]
    return ["-m", f"benchmarks.plain_{framework}", data, str(BATCH), *more]


def plain(framework: Framework, data: Path) -> Run:
    with tempfile.TemporaryDirectory() as home:
        return _run(plain_command(framework, data), Path(home), stamps.PLAIN)


def plain_beginning(framework: Framework, data: Path, home: Path) -> Run:
    """Runs a plain script with one thread until its first batch is done."""
    threads = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
    variables = {**environment(home), **threads}
    started = time.monotonic()

    def trains() -> bool:
        return stamps.batches_done(home / "stamps", stamps.PLAIN) > 0

    with running(plain_command(framework, data), log=home / "log", environment=variables):
        wait_until(trains, "a plain script has done its first batch")
    return Run(started=started, stamps=stamps.read(home / "stamps")[stamps.PLAIN])


def job(framework: Framework, data: Path) -> Run:
    with tempfile.TemporaryDirectory() as home:
        return _run(train_command(framework, data, "--distribution_strategy=Local"), Path(home), "worker-0")


def train_command(framework: Framework, data: Path, *more: str) -> list[str]:
    return elasticdl(
        "train",
        "--job_name=benchmark",
        "--model_zoo=benchmarks/zoo",
        f"--model_def=mnist.{framework}_cnn.custom_model",
        f"--training_data={data}",
        f"--minibatch_size={BATCH}",
        *more,
    )


def environment(home: Path) -> dict[str, str]:
    folder = home / "stamps"
    folder.mkdir()
    return {stamps.FOLDER: str(folder), "ELASTICDL_HOME": str(home)}


def _run(command: list[str], home: Path, node: str) -> Run:
    log = home / "log"
    variables = environment(home)
    started = time.monotonic()
    with running(command, log=log, environment=variables) as process:
        finish(process, log)
    found = stamps.read(home / "stamps")
    assert node in found, tail(log)
    return Run(started=started, stamps=found[node])
