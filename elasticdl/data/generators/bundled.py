"""Small real data sets to start with: handwritten digits and irises from scikit-learn, MNIST from its files.

All are written as a folder with `train` and `test` in it, ready for --training_data and --validation_data. The images
are RecordIO files of Examples with `image` (float32) and `label` (int64), as the model zoo expects them; the irises are
CSV rows like those of the well-known iris.data. The same seed gives the same files.
"""

from __future__ import annotations

import csv
import importlib.util
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.data.dataset_writer import SUFFIXES, SplitWriter, file_writer, new_folder
from elasticdl.data.files.atomic_file import AtomicFile, disk_errors
from elasticdl.data.formats.idx import IdxFile, labels_beside
from elasticdl.errors import UserError
from elasticdl.extras import install_command

Progress = Callable[[int], None]

_TRAIN_SHARE = 0.8
_IDX_PARTS = {"train": "train", "test": "t10k"}
_KERAS_FILE = "mnist.npz"
_IRIS_NAMES = ("Iris-setosa", "Iris-versicolor", "Iris-virginica")


@dataclass(frozen=True, kw_only=True)
class Made:
    """A data set that was written: how many samples each of its parts has."""

    folder: Path
    samples: Mapping[str, int]


def silent(samples: int) -> None:
    """Reports no progress."""


def make_digits(
    output: Path,
    *,
    records_per_file: int = 512,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Made:
    """1797 handwritten digits of 8×8 pixels between 0 and 1."""
    # A row is 64 pixels from 0 to 16 and the digit.
    digits = np.loadtxt(_of_scikit_learn("digits.csv.gz"), delimiter=",")
    images = (digits[:, :-1] / 16.0).astype(np.float32).reshape(-1, 8, 8)
    labels = digits[:, -1].astype(np.int64)

    def records(rows: Iterable[int]) -> Iterator[Any]:
        return ({"image": images[row], "label": int(labels[row])} for row in rows)

    train, test = _split(len(labels), seed)
    parts = {"train": records(train), "test": records(test)}
    return _write(output, parts, "digits", "recordio", records_per_file, overwrite, progress)


def make_iris(
    output: Path,
    *,
    records_per_file: int = 512,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Made:
    """150 irises: four measures in centimetres and the species."""
    rows = _irises()
    train, test = _split(len(rows), seed)
    parts = {"train": (rows[row] for row in train), "test": (rows[row] for row in test)}
    return _write(output, parts, "iris", "csv", records_per_file, overwrite, progress)


def make_iris_file(path: Path, *, overwrite: bool = False) -> int:
    """Writes the well-known file iris.data: all irises in their usual order. Returns the number of records."""
    if path.exists() and not (overwrite and path.is_file()):
        hint = "Choose another name." if path.is_dir() else "Add --overwrite to replace it."
        raise UserError(f"{path} exists.", hint=hint)
    rows = _irises()
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with AtomicFile(path) as file:
            file.write("".join(",".join(row) + "\n" for row in rows).encode())
    return len(rows)


def _irises() -> list[list[str]]:
    with _of_scikit_learn("iris.csv").open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        # How many rows and columns there are, and names of species.
        next(rows)
        return [[*(f"{float(cell):.1f}" for cell in row[:4]), _IRIS_NAMES[int(row[4])]] for row in rows]


def make_mnist(
    source: Path,
    output: Path,
    *,
    records_per_file: int = 8192,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Made:
    """MNIST, or a data set published like it: images with values from 0 to 255, in the order of the files.

    `source` is a folder with the four idx files or with Keras' `mnist.npz`, or the `.npz` file itself.
    """
    source = source.expanduser()
    arrays = source if source.suffix == ".npz" else source / _KERAS_FILE
    if arrays.is_file():
        parts = _parts_of_arrays(arrays)
    else:
        parts = {part: _idx_records(_images_of(source, stem)) for part, stem in _IDX_PARTS.items()}
    return _write(output, parts, "mnist", "recordio", records_per_file, overwrite, progress)


def _idx_records(file: IdxFile) -> Iterator[Any]:
    for record in file.read(0, len(file)):
        yield {"image": record["image"].astype(np.float32), "label": record["label"]}


def _parts_of_arrays(path: Path) -> dict[str, Iterable[Any]]:
    """The parts of an `.npz` file as Keras publishes MNIST: x_train, y_train, x_test, y_test."""
    parts: dict[str, Iterable[Any]] = {}
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for part in _IDX_PARTS:
                parts[part] = _array_records(arrays[f"x_{part}"], arrays[f"y_{part}"], path, part)
    except (KeyError, OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} cannot be read as MNIST: {error}",
            hint="It has the arrays x_train, y_train, x_test and y_test, as Keras' mnist.npz.",
        ) from error
    return parts


def _array_records(images: Any, labels: Any, path: Path, part: str) -> Iterator[Any]:
    if len(images) != len(labels):
        raise UserError(f"{path} has {len(images)} images and {len(labels)} labels in x_{part} and y_{part}.")
    images = images.astype(np.float32).reshape(len(images), -1)
    return ({"image": image, "label": int(label)} for image, label in zip(images, labels, strict=True))


def _images_of(source: Path, part: str) -> IdxFile:
    found = sorted(source.glob(f"{part}-images*")) if source.is_dir() else []
    if not found or labels_beside(found[0]) is None:
        missing = "labels-idx1" if found else "images-idx3"
        raise UserError(
            f"There is no {part}-{missing}-ubyte (or {part}-{missing}-ubyte.gz) in {source}.",
            hint="--source names a folder with MNIST's four files ({train,t10k}-{images-idx3,labels-idx1}-ubyte) or "
            "with Keras' mnist.npz.",
        )
    return IdxFile(found[0])


def _of_scikit_learn(name: str) -> Path:
    """A file of its data. It is not imported for that: the import takes many times as long as all the rest."""
    found = importlib.util.find_spec("sklearn")
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder) / "datasets" / "data" / name
        if path.exists():
            return path
    raise UserError(
        "This data set comes with scikit-learn, which is not installed.",
        hint=install_command("datasets"),
    )


def _split(count: int, seed: int) -> tuple[list[int], list[int]]:
    order = np.random.default_rng(seed).permutation(count).tolist()
    border = int(count * _TRAIN_SHARE)
    return order[:border], order[border:]


def _write(
    output: Path,
    parts: Mapping[str, Iterable[Any]],
    stem: str,
    format: str,  # noqa: A002
    records_per_file: int,
    overwrite: bool,
    progress: Progress,
) -> Made:
    samples: dict[str, int] = {}
    with new_folder(output, overwrite=overwrite) as folder:
        for part, records in parts.items():
            samples[part] = 0
            with split_files(folder / part, stem, format, records_per_file) as writer:
                for record in records:
                    writer.write(record)
                    samples[part] += 1
                    progress(1)
    return Made(folder=output, samples=samples)


def split_files(folder: Path, stem: str, format: str, records_per_file: int) -> SplitWriter:  # noqa: A002
    """Files STEM-00000, STEM-00001, … of a format in a new folder."""
    if records_per_file < 1:
        raise UserError(f"records_per_file is {records_per_file}; it must be 1 at least.")
    folder.mkdir()
    return SplitWriter(
        lambda number: folder / f"{stem}-{number:05d}{SUFFIXES[format]}",
        records_per_file,
        lambda path: file_writer(format, path),
    )
