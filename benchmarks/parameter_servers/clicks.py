"""The data and the sizes of all sides: generated once, in files that every process maps into its memory.

Reading is not measured, so a batch is a slice of arrays whose pages are in memory. A sample has 13 numbers, 26
categories, and whether there was a click. Each category has its own range of ids, 10⁷ in total, drawn by Zipf's law;
frequent ids are spread over the range. Every id has a weight, computed from its hash, and so has every number. Labels
are drawn with the probability of the sum of the weights, so that there is something to learn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NUMBERS, CATEGORIES = 13, 26
WIDTH = 16
LAYERS = {"full": (400, 400, 400), "light": (64, 32)}

# Optimizer of all sides. Adagrad as in Keras: the sums start at 0.1.
RATE = 0.01
START = 0.1
EPSILON = 1e-7
# Rows start uniformly within this distance of zero.
SPREAD = 0.05
# Rate of plain SGD, for peers without Adagrad.
PLAIN_RATE = 0.1

# Exponent of Zipf's law; that of real ids is a little above 1.
_EXPONENT = 1.05


@dataclass(frozen=True, kw_only=True)
class Sizes:
    # That categories may have.
    ids: int = 10_000_000
    batch: int = 4096
    # Batches of one pass. A side is timed after one pass, when all its rows exist.
    batches: int = 64


QUICK = Sizes(ids=100_000, batch=1024, batches=16)


@dataclass(frozen=True, kw_only=True)
class Clicks:
    sizes: Sizes
    numbers: NDArray[np.float32]
    ids: NDArray[np.int64]
    labels: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, first: int = 0) -> Iterator[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]]:
        """Yields numbers, ids and labels indefinitely; workers that share the data start at different batches."""
        size, number = self.sizes.batch, first
        while True:
            start = number * size % len(self)
            part = slice(start, start + size)
            yield self.numbers[part], self.ids[part], self.labels[part]
            number += 1


def make(folder: Path, sizes: Sizes) -> None:
    chance = np.random.default_rng(7)
    samples = sizes.batches * sizes.batch
    numbers = chance.standard_normal((samples, NUMBERS)).astype(np.float32)
    size = sizes.ids // CATEGORIES
    ranks = _zipf(chance.random((samples, CATEGORIES)), size)
    # A prime that divides no size in use, so that every rank has its own position.
    places = ranks * 1_000_003 % size
    ids = places + np.arange(CATEGORIES, dtype=np.int64) * size
    logits = 0.3 * _weights(ids).sum(1) + numbers @ (0.2 * _weights(np.arange(-NUMBERS, 0)))
    labels = (chance.random(samples) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    for name, array in (("numbers", numbers), ("ids", ids), ("labels", labels)):
        np.save(folder / f"{name}.npy", np.ascontiguousarray(array))
    (folder / "sizes.json").write_text(json.dumps(asdict(sizes)))


def open_clicks(folder: Path) -> Clicks:
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="c") for name in ("numbers", "ids", "labels")}
    sizes = Sizes(**json.loads((folder / "sizes.json").read_text()))
    # A plain array over the mapping: slicing it is cheaper than slicing np.memmap.
    return Clicks(sizes=sizes, **{name: np.asarray(array) for name, array in arrays.items()})


def dense_parameters(layers: tuple[int, ...]) -> int:
    """Returns the number of dense parameters, which is the same on every side."""
    width = NUMBERS + CATEGORIES * WIDTH
    count, above = width + 1, width
    for units in (*layers, 1):
        count += above * units + units
        above = units
    return count


def _zipf(uniform: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    power = 1.0 - _EXPONENT
    ranks = (uniform * (float(size + 1) ** power - 1.0) + 1.0) ** (1.0 / power)
    clipped: NDArray[np.float64] = np.clip(ranks - 1, 0, size - 1)
    return clipped.astype(np.int64)


def _weights(ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns one weight per id, with a standard deviation of about one."""
    mixed = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    return (mixed >> np.uint64(11)).astype(np.float64) / (1 << 53) * 3.46 - 1.73
