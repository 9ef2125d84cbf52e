"""Image folders: a file is a sample, the folder it lies in is its class.

A record is a dict: `image`, the bytes of the file as they are (decoding is the feed's part), `label`, the
number of the class, and `path`. Classes are the folders directly below the data folder, numbered by sorted
name, or in the order of `classes=[cat,dog]` in --data_reader_params, which keeps numbers the same where a
class is missing in one data set. In a folder without subfolders every label is -1.

The list of files is the index. It is rebuilt on every opening, and kept in a compact form: the names joined in
one string.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.data.files.atomic_file import disk_errors
from elasticdl.data.files.multi_file import Damaged, DataFile
from elasticdl.data.format_parameters import nearest
from elasticdl.errors import UserError

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")
# The first bytes of files of these kinds; other files are no images that anything could decode.
SIGNATURES = (
    b"\xff\xd8\xff",
    b"\x89PNG\r\n\x1a\n",
    b"GIF8",
    b"BM",
    b"RIFF",
    b"II*\x00",
    b"MM\x00*",
)


class ImageFiles(DataFile):
    """All images of a data set."""

    def __init__(self, root: Path, paths: Sequence[Path], classes: Sequence[str] = ()) -> None:
        self.path = root
        relative = [path.relative_to(root) for path in paths]
        folders = {path.parts[0] for path in relative if len(path.parts) > 1}
        flat = next((path for path in relative if len(path.parts) == 1), None)
        if folders and flat is not None:
            raise UserError(
                f"{root / flat} lies beside the folders of the classes, so it has no class itself.",
                hint="Move it into one of them, or away.",
            )
        if classes:
            for folder in sorted(folders - set(classes)):
                raise UserError(
                    f"The class of the folder {root / folder} is none of the given classes.",
                    hint=nearest(folder, classes),
                )
        self.class_names = tuple(classes) or tuple(sorted(folders))
        numbers = {name: number for number, name in enumerate(self.class_names)}
        self._labels = np.array(
            [numbers[path.parts[0]] if len(path.parts) > 1 else -1 for path in relative], dtype=np.int32
        )
        names = [str(path).encode("utf-8", "surrogateescape") for path in relative]
        self._ends = np.cumsum([len(name) for name in names], dtype=np.int64)
        self._names = b"".join(names)

    def __len__(self) -> int:
        return len(self._labels)

    def read(self, start: int, end: int) -> Iterator[dict[str, Any]]:
        for number in range(start, end):
            path = self._path(number)
            with disk_errors(path, doing="read"):
                image = path.read_bytes()
            if not image.startswith(SIGNATURES):
                reason = "the file is not an image" if image else "the file is empty"
                raise Damaged(start=number, end=number + 1, where=f"{path}, byte 0", reason=reason)
            yield {"image": image, "label": int(self._labels[number]), "path": str(path)}

    def paths(self) -> Iterator[Path]:
        return (self._path(number) for number in range(len(self)))

    def _path(self, number: int) -> Path:
        begin = int(self._ends[number - 1]) if number else 0
        return self.path / self._names[begin : int(self._ends[number])].decode("utf-8", "surrogateescape")
