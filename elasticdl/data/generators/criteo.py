"""Generates click data of any size that looks like Criteo's and from which a model can learn.

A row has a label, 13 numbers and 26 categories, any of which may be missing, as in the display-advertising data
that Criteo published. Categories are drawn by Zipf's law from vocabularies as large as the real ones, so a few ids
are seen all the time and most of them hardly ever: what embedding tables have to cope with. Every id has a weight,
computed from its hash and stored nowhere, and so has every number; the label is drawn with the probability that the
sum of the weights gives. A model that learns the weights of the frequent ids predicts clicks well above chance.

Rows are made in blocks with NumPy. Each block has its own generator, seeded by the seed, the part and the block's
number, so the same call gives the same rows whatever the files are split like, and memory stays that of a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.data.dataset_writer import ParquetWriter, Sink, SplitWriter, new_folder
from elasticdl.data.files.atomic_file import AtomicFile
from elasticdl.data.format_parameters import nearest
from elasticdl.data.generators.bundled import Made, Progress, silent, split_files
from elasticdl.errors import UserError

NUMBERS = tuple(f"I{number}" for number in range(1, 14))
CATEGORIES = tuple(f"C{number}" for number in range(1, 27))
FORMATS = ("text", "recordio", "tfrecord", "parquet")

_BLOCK_ROWS = 1 << 15
# Distinct values of the 26 categories, in the magnitude of the real data.
_VOCABULARY = (
    1460, 583, 10_000_000, 2_200_000, 305, 24, 12_500, 633, 3, 93_000, 5700, 8_300_000, 3200,
    27, 15_000, 5_400_000, 10, 5700, 2200, 4, 7_000_000, 18, 15, 286_000, 105, 142_000,
)  # fmt: skip
# How steeply Zipf's law falls; real ids are a little above 1.
_EXPONENT = 1.05
# Mean and spread of the logarithm of each number, and how often numbers and categories are missing.
_LOG_MEANS = (0.8, 1.8, 1.7, 1.6, 7.5, 3.6, 1.4, 2.0, 4.0, 0.4, 1.0, 0.3, 1.7)
_LOG_SPREADS = (1.0, 1.8, 1.3, 0.9, 1.8, 1.4, 1.3, 0.9, 1.3, 0.5, 0.9, 0.8, 1.0)
_MISSING_NUMBERS = (0.45, 0, 0.21, 0.22, 0.03, 0.22, 0.04, 0, 0.04, 0.45, 0.04, 0.76, 0.22)
_MISSING_CATEGORIES = 0.04
# About a quarter of the rows are clicks; the weights spread the logit by about 1.5 around that.
_BIAS = -1.5
_CATEGORY_WEIGHT = 0.45
_NUMBER_WEIGHT = 0.25
_HEX = np.frombuffer(b"".join(b"%02x" % value for value in range(256)), dtype=np.uint8).reshape(256, 2)


def make_criteo_like(
    output: Path,
    *,
    rows: int,
    test_rows: int | None = None,
    format: str = "text",  # noqa: A002
    records_per_file: int = 1_000_000,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Made:
    """Generates so many rows in `train`, and a tenth as many (or `test_rows`) in `test`."""
    if format not in FORMATS:
        raise UserError(f"Criteo-like data cannot be written as {format!r}.", hint=nearest(format, FORMATS))
    if rows < 1 or records_per_file < 1:
        raise UserError("rows and records_per_file must be 1 at least.")
    samples = {"train": rows, "test": max(1, rows // 10) if test_rows is None else test_rows}
    with new_folder(output, overwrite=overwrite) as folder:
        for number, (part, count) in enumerate(samples.items()):
            if count:
                _write_part(folder / part, blocks(count, seed, number), format, records_per_file, progress)
    return Made(folder=output, samples=samples)


def blocks(rows: int, seed: int, part: int) -> Iterator[Any]:
    """The rows as Arrow tables, one after the other: label, numbers as int32, categories as text."""
    import pyarrow

    made = 0
    while made < rows:
        # A block is always drawn whole, so that its rows do not depend on how many are wanted.
        table = _block(pyarrow, np.random.default_rng((seed, part, made // _BLOCK_ROWS)), seed)
        yield table.slice(0, rows - made)
        made += _BLOCK_ROWS


def _block(pyarrow: Any, rng: np.random.Generator, seed: int) -> Any:
    logit = np.full(_BLOCK_ROWS, _BIAS)
    numbers, categories = [], []
    for field, (mean, spread, missing) in enumerate(
        zip(_LOG_MEANS, _LOG_SPREADS, _MISSING_NUMBERS, strict=True)
    ):
        standard = rng.standard_normal(_BLOCK_ROWS)
        present = rng.random(_BLOCK_ROWS) >= missing
        weight = _NUMBER_WEIGHT * _weights(np.array([field], np.uint64), seed)[0]
        logit += np.where(present, weight * standard, 0.0)
        values = np.minimum(np.exp(mean + spread * standard), 2e9).astype(np.int32)
        numbers.append(pyarrow.array(values, mask=~present))
    for field, size in enumerate(_VOCABULARY):
        ids = _zipf(rng.random(_BLOCK_ROWS), size)
        present = rng.random(_BLOCK_ROWS) >= _MISSING_CATEGORIES
        hashes = _mix((ids + np.uint64(1)) * np.uint64(64) + np.uint64(field))
        logit += np.where(present, _CATEGORY_WEIGHT * _weights(hashes, seed), 0.0)
        categories.append(_texts(pyarrow, hashes.astype(np.uint32), present))
    label = (rng.random(_BLOCK_ROWS) < 1 / (1 + np.exp(-logit))).astype(np.int32)
    return pyarrow.table(
        [pyarrow.array(label), *numbers, *categories], names=["label", *NUMBERS, *CATEGORIES]
    )


def _zipf(uniform: NDArray[np.float64], size: int) -> NDArray[np.uint64]:
    """Ids from 0 to size - 1 whose frequency falls with their rank to the power of the exponent."""
    power = 1.0 - _EXPONENT
    ranks: NDArray[np.float64] = (uniform * (float(size + 1) ** power - 1.0) + 1.0) ** (1.0 / power)
    return np.clip(ranks - 1, 0, size - 1).astype(np.uint64)


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A hash of 64-bit numbers (the finalizer of SplitMix64)."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _weights(hashes: NDArray[np.uint64], seed: int) -> NDArray[np.float64]:
    """A weight for each hash, spread by about one around zero."""
    mixed = _mix(hashes ^ np.uint64((seed * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF))
    # Four uniform numbers added up have the mean 2 and the variance 4/12.
    total: NDArray[np.float64] = np.full(len(hashes), -2.0)
    for shift in (0, 16, 32, 48):
        total += ((mixed >> np.uint64(shift)) & np.uint64(0xFFFF)) / 65535
    return np.multiply(total, 3.0**0.5)


def _texts(pyarrow: Any, hashes: NDArray[np.uint32], present: NDArray[np.bool_]) -> Any:
    """Eight hexadecimal digits a hash, as an Arrow array that shares the digits' memory."""
    digits = np.ascontiguousarray(_HEX[hashes.astype(">u4").view(np.uint8).reshape(-1, 4)])
    ends = np.arange(0, 8 * len(hashes) + 1, 8, dtype=np.int32)
    bits = np.packbits(present, bitorder="little")
    buffers = [pyarrow.py_buffer(array) for array in (bits, ends, digits)]
    return pyarrow.Array.from_buffers(pyarrow.utf8(), len(hashes), buffers)


# -- writing -----------------------------------------------------------------------------------------------


def _write_part(
    folder: Path,
    tables: Iterator[Any],
    format: str,  # noqa: A002
    records_per_file: int,
    progress: Progress,
) -> None:
    if format in ("text", "parquet"):
        folder.mkdir()
        for number, pieces in enumerate(_filewise(tables, records_per_file)):
            path = folder / f"criteo-{number:05d}.{'txt' if format == 'text' else 'parquet'}"
            writing = _text_file(path, pieces) if format == "text" else _parquet_file(path, pieces)
            for rows in writing:
                progress(rows)
        return
    with split_files(folder, "criteo", format, records_per_file) as writer:
        for table in tables:
            _write_examples(writer, table)
            progress(len(table))


def _write_examples(writer: SplitWriter, table: Any) -> None:
    names = table.column_names
    for row in zip(*(column.to_pylist() for column in _with_floats(table).columns), strict=True):
        writer.write(dict(zip(names, row, strict=True)))


def _filewise(tables: Iterator[Any], records_per_file: int) -> Iterator[Iterator[Any]]:
    """The tables cut where one file ends and the next begins: for each file its tables."""
    rest = next(tables, None)

    def one_file() -> Iterator[Any]:
        nonlocal rest
        room = records_per_file
        while rest is not None and room:
            piece = rest.slice(0, room)
            room -= len(piece)
            rest = rest.slice(len(piece)) if len(piece) < len(rest) else next(tables, None)
            yield piece

    while rest is not None:
        yield one_file()


def _text_file(path: Path, tables: Iterator[Any]) -> Iterator[int]:
    """Criteo's own format: columns separated by tabs, no header, nothing where a value is missing."""
    import pyarrow
    import pyarrow.csv

    options = pyarrow.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    with AtomicFile(path) as file:
        sink = pyarrow.PythonFile(Sink(file), mode="w")
        for table in tables:
            pyarrow.csv.write_csv(table, sink, options)
            yield len(table)


def _parquet_file(path: Path, tables: Iterator[Any]) -> Iterator[int]:
    writer = None
    try:
        for table in tables:
            floats = _with_floats(table)
            if writer is None:
                writer = ParquetWriter(path, floats.schema)
            writer.write_table(floats)
            yield len(table)
    except BaseException:
        if writer is not None:
            writer.discard()
        raise
    if writer is not None:
        writer.close()


def _with_floats(table: Any) -> Any:
    """The numbers as float32, where a missing one has a value, NaN; the label as int64."""
    import pyarrow

    kinds = {name: pyarrow.float32() for name in NUMBERS} | {"label": pyarrow.int64()}
    fields = [pyarrow.field(field.name, kinds.get(field.name, field.type)) for field in table.schema]
    return table.cast(pyarrow.schema(fields))
