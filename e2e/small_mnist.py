"""`python -m e2e.small_mnist FOLDER`: four files like MNIST's, with few images in them.

The tests of the documentation have no network to fetch MNIST from. These are scikit-learn's digits, enlarged to
28×28 pixels, in the same files of the same format.
"""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

PARTS = {"train": slice(0, 640), "t10k": slice(640, 800)}


def write(folder: Path) -> None:
    from sklearn.datasets import load_digits

    folder.mkdir(parents=True, exist_ok=True)
    small, labels = load_digits(return_X_y=True)
    large = np.kron(small.reshape(-1, 8, 8), np.ones((3, 3)))
    images = np.pad(large * 255 / 16, ((0, 0), (2, 2), (2, 2)))
    for part, chosen in PARTS.items():
        _write(folder / f"{part}-images-idx3-ubyte.gz", images[chosen])
        _write(folder / f"{part}-labels-idx1-ubyte.gz", labels[chosen])


def _write(path: Path, numbers: Any) -> None:
    header = struct.pack(f">4B{numbers.ndim}I", 0, 0, 8, numbers.ndim, *numbers.shape)
    with gzip.open(path, "wb") as file:
        file.write(header + numbers.astype(np.uint8).tobytes())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
