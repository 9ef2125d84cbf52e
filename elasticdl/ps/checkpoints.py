"""Checkpoints on disk: which there are, whether they are whole, and how one comes into being.

    DIR/version-1200/manifest.json   what belongs to it: step, files with their sizes and checksums
    DIR/version-1200/ledger.json     the ledger at the cut, where there is one (an export has none)
    DIR/version-1200/*.edl           parameters and optimizer slots, a file a process that held some

A checkpoint may hold of its tables only what has changed since an earlier one, its `base`, a folder beside it; that one
may have a base in turn (`chain`). Nobody removes a checkpoint that another one needs.

A checkpoint is written into a hidden neighbour and renamed when all of it is on the disk, so whatever has
the name of a checkpoint is one. The manifest is the last file written.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from elasticdl.jobs.errors import UserError

MANIFEST = "manifest.json"
LEDGER = "ledger.json"
FORMAT = 1
SUFFIX = ".edl"
# An export keeps the same files in a folder below it, so that `evaluate` and `predict` can start from one.
EXPORT_FOLDER = "elasticdl"
_NAME = re.compile(r"version-(\d+)$")


@dataclass(frozen=True, kw_only=True)
class SavedFile:
    name: str
    bytes: int
    crc32: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    step: int
    files: tuple[SavedFile, ...]
    # Who made it, for messages and for deciding whether its ledger means the same data.
    attributes: dict[str, Any] = field(default_factory=dict)
    # The name of the folder beside it that it needs; empty: none.
    base: str = ""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    path: Path
    manifest: Manifest

    def ledger(self) -> dict[str, Any] | None:
        file = self.path / LEDGER
        if not file.exists():
            return None
        try:
            document = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise UserError(
                f"The checkpoint {self.path} is damaged: its {LEDGER} cannot be read ({error}).",
                hint="Start from an older one: name its version-N folder.",
            ) from error
        return document if isinstance(document, dict) else None

    def data_files(self) -> list[Path]:
        return [self.path / file.name for file in self.manifest.files]


def file_name(server: int, servers: int) -> str:
    """The file of one server in a checkpoint."""
    return f"ps-{server}-of-{servers}{SUFFIX}"


def temporary_folder(directory: Path, number: int) -> Path:
    """Where the files of a checkpoint to come are written; the number is that of its cut."""
    return directory / f".version-{number}.partial"


def write_manifest(folder: Path, manifest: Manifest, ledger: dict[str, Any] | None) -> None:
    if ledger is not None:
        _write(folder / LEDGER, json.dumps(ledger))
    document = {"format": FORMAT, **asdict(manifest)}
    _write(folder / MANIFEST, json.dumps(document, indent=2))


def publish(folder: Path, directory: Path, step: int) -> Path:
    """Gives a complete temporary folder its name."""
    target = directory / f"version-{step}"
    if target.exists():
        # Left by a run of the same job up to the same step. The new one replaces it.
        shutil.rmtree(target)
    os.rename(folder, target)
    _sync_folder(directory)
    return target


def prune(directory: Path, keep: int) -> None:
    """Removes the oldest checkpoints beyond `keep` (0 keeps all) but for those that a newer one needs."""
    if keep <= 0:
        return
    found = [path for _, path in versions(directory)]
    needed = set(found[-keep:])
    for path in reversed(found):
        base = _base_of(path) if path in needed else ""
        if base:
            needed.add(directory / base)
    for path in found:
        if path not in needed:
            shutil.rmtree(path, ignore_errors=True)


def chain(checkpoint: Checkpoint) -> list[Checkpoint]:
    """The checkpoint and all that it needs, oldest first."""
    found = [checkpoint]
    while base := found[0].manifest.base:
        place = checkpoint.path.parent / base
        if not (place / MANIFEST).exists():
            raise UserError(
                f"The checkpoint {found[0].path} has only what changed since {base}, which is not beside it.",
                hint=f"Put {base} into the same folder, or start from an older checkpoint.",
            )
        if any(place == each.path for each in found):
            raise UserError(f"The checkpoint {place} is damaged: it is its own base.")
        found.insert(0, read_checkpoint(place))
    return found


def _base_of(path: Path) -> str:
    try:
        return _base_in(json.loads((path / MANIFEST).read_text()))
    except (OSError, ValueError):
        return ""


def _base_in(document: dict[str, Any]) -> str:
    base = str(document.get("base", ""))
    if base and not _NAME.match(base):
        raise ValueError(f"its base is {base!r}")
    return base


def versions(directory: Path) -> list[tuple[int, Path]]:
    """The checkpoints below a folder by step, oldest first."""
    found = []
    for path in directory.iterdir() if directory.is_dir() else ():
        match = _NAME.match(path.name)
        if match and (path / MANIFEST).exists():
            found.append((int(match.group(1)), path))
    return sorted(found)


def values_folder(export: Path) -> Path:
    """Where the values of an exported model are, in our form."""
    if not export.is_dir():
        return export.with_name(f"{export.name}.{EXPORT_FOLDER}")
    # TensorFlow keeps its hands off assets.extra in a SavedModel.
    return (export / "assets.extra" if (export / "saved_model.pb").exists() else export) / EXPORT_FOLDER


def find_checkpoint(place: str) -> Checkpoint:
    """The checkpoint meant by a path: itself, the newest below it, or the one inside an export."""
    path = Path(place)
    if not path.exists():
        raise UserError(
            f"There is no checkpoint at {place}: the path does not exist.",
            hint="Give the folder of --checkpoint_dir, one of its version-N folders, or an exported model.",
        )
    for candidate in (path, values_folder(path)):
        if (candidate / MANIFEST).exists():
            return read_checkpoint(candidate)
    if path.is_dir() and versions(path):
        return read_checkpoint(versions(path)[-1][1])
    raise UserError(
        f"There is no checkpoint at {place}: it has no {MANIFEST} and no version-N folder.",
        hint="Give the folder of --checkpoint_dir, one of its version-N folders, or an exported model.",
    )


def read_checkpoint(path: Path) -> Checkpoint:
    file = path / MANIFEST
    try:
        document = json.loads(file.read_text())
        if document["format"] != FORMAT:
            raise UserError(
                f"The checkpoint {path} has format {document['format']}, this version reads format {FORMAT}."
            )
        manifest = Manifest(
            step=int(document["step"]),
            files=tuple(SavedFile(**entry) for entry in document["files"]),
            attributes=dict(document["attributes"]),
            base=_base_in(document),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"The checkpoint {path} cannot be read: its {MANIFEST} is damaged ({error}).",
            hint="Start from an older one: name its version-N folder.",
        ) from error
    for entry in manifest.files:
        data = path / entry.name
        if not data.exists() or data.stat().st_size != entry.bytes:
            found = f"has {data.stat().st_size}" if data.exists() else "is missing"
            raise UserError(
                f"The checkpoint {path} is damaged: {entry.name} should have {entry.bytes} bytes and {found}.",
                hint="Start from an older one: name its version-N folder.",
            )
    return Checkpoint(path=path, manifest=manifest)


def file_crc32(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            crc = zlib.crc32(block, crc)
    return crc


def _write(path: Path, text: str) -> None:
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
