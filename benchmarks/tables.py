"""Lookups and Adagrad updates per second of a table on one core, against a plain C++ open-addressing table.

Both hold the same rows and get the same ids, in turns, in one process: batches of DeepFM's size (4096 samples of 26
categories), in which every id is unique, in the order of their buckets, as workers send them. The plain table is
compiled here (plain_table.cpp) with full optimization for portable code, as ours is. The bound by memory bandwidth is
reported too: a gather with known positions.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Result, at_least
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Table, TableSpec
from elasticdl.ps.embedding.unique_ids import unique
from elasticdl.wire import ps_pb2

NAME = "tables"
TARGET = 0.8
WIDTH = 16
_BUCKETS = 256
_SAMPLES, _CATEGORIES = 4096, 26
_BATCHES = 20
_SOURCE = Path(__file__).with_name("plain_table.cpp")
_FLAGS = ("-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC")


def run(*, quick: bool, repeat: int) -> list[Result]:
    rows = 200_000 if quick else 10_000_000
    chance = np.random.default_rng(1)
    ids = chance.permutation(rows).astype(np.int64) * 7919 - (1 << 40)
    drawn = [_draw(ids, zipf(chance, rows, _SAMPLES * _CATEGORIES)) for _ in range(_BATCHES)]
    batches, places = [ids for ids, _ in drawn], [places for _, places in drawn]
    gradients = chance.normal(size=(_SAMPLES * _CATEGORIES, WIDTH)).astype(np.float32)

    config = ps_pb2.OptimizerConfig(name="adagrad", flavor="keras")
    ours = Table(TableSpec(name="t", width=WIDTH), make_optimizer(config), buckets=_BUCKETS)
    with tempfile.TemporaryDirectory() as folder:
        plain = Plain(Path(folder), rows)
        for start in range(0, rows, 100_000):
            ours.gather(ids[start : start + 100_000])
            plain.gather(ids[start : start + 100_000], ahead=False)
        note = f"{rows:,} rows of {WIDTH}, {statistics.mean(map(len, batches)):,.0f} different ids a batch"
        found = _measure(
            {
                "lookup, ours": (batches, lambda each: ours.gather(each)),
                "lookup, plain": (batches, lambda each: plain.gather(each, ahead=False)),
                "lookup, plain with prefetch": (batches, lambda each: plain.gather(each, ahead=True)),
                "places known": (places, plain.gather_places),
                "Adagrad, ours": (
                    batches,
                    lambda each: ours.update(each, gradients[: len(each)], learning_rate=0.01, unique=True),
                ),
                "Adagrad, plain": (batches, lambda each: plain.adagrad(each, gradients, ahead=False)),
                "Adagrad, plain with prefetch": (
                    batches,
                    lambda each: plain.adagrad(each, gradients, ahead=True),
                ),
            },
            rounds=3 * repeat,
        )
    results = []
    for what in ("lookup", "Adagrad"):
        for peer in ("plain", "plain with prefetch"):
            result = Result(
                benchmark=NAME,
                case=f"{what}, {peer}",
                unit="million rows/s",
                us=found[f"{what}, ours"],
                peer=found[f"{what}, {peer}"],
                note=note,
            )
            results.append(at_least(result, TARGET))
    bound = found["places known"]
    gigabytes = bound * 1e6 * WIDTH * 4 / 1e9
    results.append(
        Result(
            benchmark=NAME,
            case="lookup, bound by memory",
            unit="million rows/s",
            us=found["lookup, ours"],
            peer=bound,
            compared=f"{found['lookup, ours'] / bound:.3g}×",
            note=f"a gather with known positions reads {gigabytes:.2g} GB/s",
        )
    )
    return results


def zipf(chance: np.random.Generator, rows: int, count: int, exponent: float = 1.05) -> NDArray[np.int64]:
    """Draws ranks: few are frequent, most are rare."""
    share = chance.random(count)
    rank: NDArray[np.float64] = ((rows ** (1 - exponent) - 1) * share + 1) ** (1 / (1 - exponent))
    return np.minimum(rank.astype(np.int64), rows) - 1


def _draw(ids: NDArray[np.int64], ranks: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct ids of a batch in the order in which workers send them, and the position of each row."""
    found, inverse = unique(ids[ranks])
    places = np.empty(len(found), np.int64)
    places[inverse] = ranks
    return found, places


def _measure(
    cases: dict[str, tuple[list[NDArray[Any]], Callable[[NDArray[Any]], object]]], *, rounds: int
) -> dict[str, float]:
    """Millions of rows per second of processor time, by case; cases take turns; medians of the rounds."""
    found: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(rounds):
        for case, (batches, call) in cases.items():
            began = time.process_time()
            for batch in batches:
                call(batch)
            seconds = time.process_time() - began
            found[case].append(sum(map(len, batches)) / seconds / 1e6)
    return {case: statistics.median(rates) for case, rates in found.items()}


class Plain:
    def __init__(self, folder: Path, rows: int) -> None:
        library = folder / "plain_table.so"
        compiler = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), "")
        if not compiler:
            raise SystemExit("The benchmark `tables` needs a C++ compiler for its peer.")
        subprocess.run([compiler, *_FLAGS, "-o", str(library), str(_SOURCE)], check=True)
        self._library = ctypes.CDLL(str(library))
        self._library.table_make.restype = ctypes.c_void_p
        self._table = ctypes.c_void_p(self._library.table_make(ctypes.c_int64(WIDTH), ctypes.c_int64(rows)))

    def gather(self, ids: NDArray[np.int64], *, ahead: bool) -> NDArray[np.float32]:
        out = np.empty((len(ids), WIDTH), np.float32)
        self._library.table_gather(self._table, _at(ids), ctypes.c_int64(len(ids)), _at(out), int(ahead))
        return out

    def gather_places(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        out = np.empty((len(places), WIDTH), np.float32)
        self._library.places_gather(self._table, _at(places), ctypes.c_int64(len(places)), _at(out))
        return out

    def adagrad(self, ids: NDArray[np.int64], gradients: NDArray[np.float32], *, ahead: bool) -> None:
        rate = ctypes.c_float(0.01)
        self._library.table_adagrad(
            self._table, _at(ids), ctypes.c_int64(len(ids)), _at(gradients), rate, int(ahead)
        )


def _at(array: NDArray[Any]) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)
