"""Resolves a path that a user names to files: one file, a folder with everything below it, or a pattern.

Files of a folder are taken in the order of their paths. Passed over are hidden files and folders (ours
among them, and the `..data` links of Kubernetes volumes), the marks that other systems leave beside data
(`_SUCCESS`, `_metadata`), and texts about the data (`README`, `LICENSE`, `*.md`). Everything else below the
folder is data, or an error: no file is skipped because its format is unknown.
"""

from __future__ import annotations

import glob
import os
from dataclasses import dataclass
from pathlib import Path

from elasticdl.data.files.atomic_file import disk_errors
from elasticdl.errors import UserError

_MARKS = ("_SUCCESS", "_metadata", "_common_metadata", "_started", "_committed", "_temporary")
_TEXTS = ("README", "LICENSE", "LICENCE", "NOTICE", "CHANGELOG")


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The files of a data set, sorted, and the folder they were looked for in."""

    origin: str
    root: Path
    paths: tuple[Path, ...]
    single: bool


def list_files(origin: str) -> Listing:
    """Raises `UserError` if there is nothing, or no file in it."""
    if not origin.strip():
        raise UserError("The path of the data is empty.")
    path = Path(origin).expanduser()
    with disk_errors(path, doing="read"):
        if path.is_dir():
            return _some(origin, path, _below(path), f"The folder {path} holds no data files.")
        if path.exists():
            if not path.is_file():
                raise UserError(f"{path} is neither a file nor a folder.")
            return Listing(origin=origin, root=path.parent, paths=(path,), single=True)
        if not glob.has_magic(str(path)):
            raise UserError(f"There is no file or folder {path}.", hint=_what_is_there(path))
        found: list[Path] = []
        for match in glob.iglob(str(path), recursive=True):
            matched = Path(match)
            if matched.is_dir():
                # With ** a folder and what is in it both match.
                found += [] if "**" in str(path) else _below(matched)
            else:
                found.append(matched)
        return _some(origin, _fixed_part(path), found, f"No file matches {path}.")


def _some(origin: str, root: Path, paths: list[Path], problem: str) -> Listing:
    if not paths:
        raise UserError(problem)
    return Listing(origin=origin, root=root, paths=tuple(sorted(set(paths), key=str)), single=False)


def _below(folder: Path) -> list[Path]:
    paths: list[Path] = []
    seen: set[str] = set()
    for place, folders, names in os.walk(folder, followlinks=True, onerror=_raise):
        real = os.path.realpath(place)
        # A link to a folder above would lead round forever.
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not passed_over(name)]
        paths += [Path(place, name) for name in names if not passed_over(name)]
    return paths


def _raise(error: OSError) -> None:
    """A folder that cannot be listed must not look like an empty one."""
    raise error


def passed_over(name: str) -> bool:
    return (
        name.startswith(".")
        or name.startswith(_MARKS)
        or name.upper().split(".")[0] in _TEXTS
        or name.lower().endswith(".md")
    )


def _fixed_part(pattern: Path) -> Path:
    """The folders of a pattern before the first that has a wildcard."""
    parts: list[str] = []
    for part in pattern.parts[:-1]:
        if glob.has_magic(part):
            break
        parts.append(part)
    return Path(*parts)


def _what_is_there(path: Path) -> str:
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if folder != path.parent or not folder.is_dir():
        return f"The nearest folder that exists is {folder.absolute()}."
    import difflib

    close = difflib.get_close_matches(path.name, os.listdir(folder), n=1)
    return f"Did you mean {folder / close[0]}?" if close else ""
