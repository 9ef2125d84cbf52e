"""The folders `pass-0000K` of the models: one file per parameter, `done` last, and the rename that publishes them.

A file has the header of the original: format version (int32, 0), bytes per value (uint32, 4), number of values
(uint64); then the values as float32. A folder without `done` was not finished and counts as absent.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from elasticdl.errors import UserError

_NAME = re.compile(r"pass-(\d{5})")
_HEADER = struct.Struct("<iIQ")
_VALUE_BYTES = 4
DONE = "done"
_OTHER_CONFIGURATION = (
    "It was saved by another configuration: move the folder away, or use the one that saved it."
)


def pass_folder(output: Path, number: int) -> Path:
    return output / f"pass-{number:05d}"


def newest_pass(output: Path) -> int | None:
    """The number of the newest complete pass."""
    if not output.is_dir():
        return None
    complete = [
        int(match[1])
        for entry in output.iterdir()
        if (match := _NAME.fullmatch(entry.name)) and (entry / DONE).is_file()
    ]
    return max(complete, default=None)


def save_pass(output: Path, number: int, parameters: Mapping[str, np.ndarray[Any, Any]]) -> Path:
    """Writes a pass beside its place, then renames it: a reader sees all of it or nothing."""
    target = pass_folder(output, number)
    part = output / f".pass-{number:05d}.part"
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    try:
        for name, values in parameters.items():
            _write(part / name, _HEADER.pack(0, _VALUE_BYTES, values.size), values.astype("<f4").tobytes())
        _write(part / DONE)
    except OSError:
        # On a full volume the unfinished pass must not take the last bytes.
        shutil.rmtree(part, ignore_errors=True)
        raise
    shutil.rmtree(target, ignore_errors=True)
    part.rename(target)
    return target


def load_parameter(folder: Path, name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Raises `UserError` if the file is missing, truncated or of another size."""
    path = folder / name
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(
            f"{folder} has no parameter {name}.",
            hint=_OTHER_CONFIGURATION,
        ) from error
    if len(content) < _HEADER.size:
        raise UserError(f"{path} is not a parameter file: it has only {len(content)} bytes.")
    version, width, count = _HEADER.unpack_from(content)
    if (version, width) != (0, _VALUE_BYTES) or len(content) != _HEADER.size + count * width:
        raise UserError(f"{path} is not a complete parameter file of float32 values.")
    if count != int(np.prod(shape)):
        raise UserError(
            f"{path} has {count} values, but the configuration has {shape}.",
            hint=_OTHER_CONFIGURATION,
        )
    return np.frombuffer(content, dtype="<f4", offset=_HEADER.size).reshape(shape).copy()


def _write(path: Path, *parts: bytes) -> None:
    with path.open("wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
