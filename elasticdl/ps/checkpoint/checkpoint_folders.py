"""Checkpoints on disk: their folders, their validation, and their creation.

    DIR/version-1200/manifest.json   its content: step, files with their sizes and checksums, that of the ledger
    DIR/version-1200/ledger.json     the ledger at the same barrier (an export has none)
    DIR/version-1200/*.edl           parameters and optimizer slots, one file of each process that held some

A checkpoint may store only the rows of its tables that have changed since an earlier one, its `base`, a folder beside
it; that one may have a base in turn (`chain`). It stores the checksum of the base's manifest, which has those of the
files: another checkpoint of that name is refused. A checkpoint that another one needs is never removed. If a new one
needs its name, as after a rollback to an earlier step, it is renamed:

    DIR/version-1200.0a1b2c3d        the checksum of its manifest behind the name

The newest checkpoint of a folder is the one that was written last, whatever its step: in the folder of an earlier run a
new one begins to count from 0 again, and a job that has lost its model rolls back. Each has a number above those in its
folder then (`serial`): dates of files are lost when they are copied, and clocks differ.

A checkpoint is written into a hidden folder beside it (`partial_folders.py`) and renamed when all of it is on the disk,
so every folder with the name of a checkpoint is complete. The manifest is the last file written.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.flags.grammar import is_url

MANIFEST = "manifest.json"
LEDGER = "ledger.json"
FORMAT = 1
# The format of checkpoints with a base. Versions that do not support a base must not read them.
FORMAT_WITH_BASE = 2
SUFFIX = ".edl"
# An export keeps the same files in a folder below it, so that `evaluate` and `predict` can start from one.
EXPORT_FOLDER = "elasticdl"
# The files that identify a checkpoint and those that it needs.
_SMALL = frozenset({MANIFEST, LEDGER})
_SNAPSHOT = "barrier-"
_NAME = re.compile(r"version-(\d+)$")
_ASIDE = re.compile(r"version-\d+\.[0-9a-f]{8}$")


def snapshot_name(barrier: int) -> str:
    """Returns the name of the snapshot that servers keep of a barrier until it is written and evaluated."""
    return f"{_SNAPSHOT}{barrier}"


def snapshot_barrier(name: str) -> int | None:
    """Returns the barrier of a snapshot, by its name."""
    number = name.removeprefix(_SNAPSHOT)
    return int(number) if number != name and number.isdecimal() else None


@dataclass(frozen=True, kw_only=True)
class SavedFile:
    name: str
    bytes: int
    crc32: int


@dataclass(frozen=True, kw_only=True)
class Manifest:
    step: int
    files: tuple[SavedFile, ...]
    # The writer, for messages and to decide whether its ledger means the same data.
    attributes: dict[str, Any] = field(default_factory=dict)
    # The name of the folder beside it that it needs, and the CRC-32 of the manifest there; empty: none.
    base: str = ""
    base_crc32: int = 0
    # The checksum of the ledger; None: there is no ledger, or the writer did not record it.
    ledger_crc32: int | None = None
    # Higher than those of all that were in the folder before it; 0: of a version that did not number them.
    serial: int = 0


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    path: Path
    manifest: Manifest

    def ledger(self) -> dict[str, Any] | None:
        """The account of samples, if there is one. Raises `UserError` if it is not the one that was written."""
        file, expected = self.path / LEDGER, self.manifest.ledger_crc32
        if expected is None and not file.exists():
            return None
        try:
            content = file.read_bytes()
            if expected is not None and zlib.crc32(content) != expected:
                raise ValueError("its checksum is wrong")
            document = json.loads(content)
        except (OSError, ValueError) as error:
            raise UserError(
                f"The checkpoint {self.path} is damaged: its {LEDGER} cannot be read ({error}).",
                hint="Restore the file, or start from an older checkpoint: name its version-N folder.",
            ) from error
        return document if isinstance(document, dict) else None

    def data_files(self) -> list[Path]:
        return [self.path / file.name for file in self.manifest.files]


def file_name(server: int, servers: int) -> str:
    """The file of one server in a checkpoint."""
    return f"ps-{server}-of-{servers}{SUFFIX}"


def write_manifest(
    folder: Path, manifest: Manifest, ledger: dict[str, Any] | None, *, after: int = 0
) -> None:
    """Makes a checkpoint of a folder in which everything else is. Its number comes after `after` too."""
    if ledger is not None:
        text = json.dumps(ledger)
        _write(folder / LEDGER, text)
        manifest = replace(manifest, ledger_crc32=zlib.crc32(text.encode()))
    manifest = replace(manifest, serial=1 + max([after, highest_serial(folder.parent)]))
    document = {"format": FORMAT_WITH_BASE if manifest.base else FORMAT, **asdict(manifest)}
    _write(folder / MANIFEST, json.dumps(document, indent=2))
    _sync_folder(folder)


def publish(folder: Path, directory: Path, step: int) -> Path:
    """Gives a complete temporary folder its name."""
    target = directory / f"version-{step}"
    if not target.exists():
        os.rename(folder, target)
        _sync_folder(directory)
        return target
    # Left by a run of the same job up to the same step, or of this very step. It is whole until the new one is there.
    known = manifest_crc32(target)
    needed = known is not None and (target.name, known) in map(_needs, [folder, *_folders(directory)])
    aside = _aside(target, known or 0)
    shutil.rmtree(aside, ignore_errors=True)
    os.rename(target, aside)
    os.rename(folder, target)
    _sync_folder(directory)
    if not needed:
        shutil.rmtree(aside, ignore_errors=True)
    return target


def prune(directory: Path, keep: int, *, own: Path | None = None) -> None:
    """Removes the checkpoints that were written first beyond `keep` (0 keeps all), but for those that others need.

    `own` stays: what the caller would go back to, even if another job has written into the same folder since.
    """
    if keep <= 0:
        return
    wanted = [*_by_age(directory)[-keep:], *([own] if own is not None else [])]
    needed: set[Path] = set()
    while wanted:
        path = wanted.pop()
        needed.add(path)
        base, crc32 = _needs(path)
        if base:
            wanted.extend({directory / base, _aside(directory / base, crc32)} - needed)
    for path in _folders(directory):
        if path not in needed:
            shutil.rmtree(path, ignore_errors=True)


def _by_age(directory: Path) -> list[Path]:
    """The checkpoints in a folder, the one that was written last at the end."""
    # Checkpoints without a number are older than all with one.
    known = [(_serial(path), _written_at(path), step, path) for step, path in versions(directory)]
    return [path for *_, path in sorted(known)]


def _serial(path: Path) -> int:
    try:
        return int(_manifest_in(path).get("serial", 0))
    except (OSError, ValueError, TypeError):
        return 0


def _written_at(path: Path) -> int:
    try:
        return (path / MANIFEST).stat().st_mtime_ns
    except OSError:
        return 0


def chain(checkpoint: Checkpoint) -> list[Checkpoint]:
    """The checkpoint and all that it needs, oldest first. Raises `UserError` if one is not there, or has other files.

    What is in the files is checked when it is read.
    """
    found = [checkpoint]
    # A symlink, or a path through one, is resolved to the place where the checkpoint is.
    directory = checkpoint.path.resolve().parent
    while found[0].manifest.base:
        base, crc32 = found[0].manifest.base, found[0].manifest.base_crc32
        place = find_base(directory, base, crc32)
        if place is None:
            there = (directory / base / MANIFEST).exists()
            raise UserError(
                f"The checkpoint {found[0].path} has only what changed since {base}, "
                f"{'and the one beside it is another' if there else 'which is not beside it'}.",
                hint=f"Put {base} into the same folder, or start from an older checkpoint.",
            )
        if any(place == each.path for each in found):
            raise UserError(f"The checkpoint {place} is damaged: it is its own base.")
        found.insert(0, read_checkpoint(place))
    for each in found:
        _check_files(each)
    return found


def _check_files(checkpoint: Checkpoint) -> None:
    # With NumPy behind it, which a master that starts without a checkpoint does not wait for.
    from elasticdl.ps.checkpoint.array_file import ArrayFile

    for entry in checkpoint.manifest.files:
        with ArrayFile(checkpoint.path / entry.name) as file:
            if file.crc32() != entry.crc32:
                raise UserError(
                    f"The checkpoint {checkpoint.path} is damaged: {entry.name} is not the file that was written "
                    "for it.",
                    hint="Restore the file, or start from an older checkpoint.",
                )


def find_base(directory: Path, name: str, crc32: int) -> Path | None:
    """Returns the checkpoint of that name whose manifest has that checksum."""
    for place in (directory / name, _aside(directory / name, crc32)):
        if manifest_crc32(place) == crc32:
            return place
    return None


def _aside(path: Path, crc32: int) -> Path:
    return path.with_name(f"{path.name}.{crc32:08x}")


def manifest_crc32(path: Path) -> int | None:
    """Returns the checksum of a checkpoint's manifest, if there is one."""
    try:
        return file_crc32(path / MANIFEST)
    except OSError:
        return None


def _folders(directory: Path) -> list[Path]:
    """All checkpoints, those that stepped aside too."""
    found = [path for _, path in versions(directory)]
    return found + [path for path in directory.iterdir() if _ASIDE.match(path.name)]


def _needs(path: Path) -> tuple[str, int]:
    """The base of a checkpoint and its checksum, as far as its manifest can be read."""
    try:
        document = _manifest_in(path)
        return _base_in(document), int(document.get("base_crc32", 0))
    except (OSError, ValueError, TypeError):
        return "", 0


def _manifest_in(path: Path) -> dict[str, Any]:
    document = json.loads((path / MANIFEST).read_text())
    if not isinstance(document, dict):
        raise ValueError(f"its {MANIFEST} is no object")
    return document


def _base_in(document: dict[str, Any]) -> str:
    base = str(document.get("base", ""))
    if base and not _NAME.match(base):
        raise ValueError(f"its base is {base!r}")
    return base


def published(directory: Path) -> list[Path]:
    """All checkpoints in a folder, those that stepped aside too."""
    return _folders(directory) if directory.is_dir() else []


def highest_serial(directory: Path) -> int:
    """The number of the checkpoint in a folder that was written last; 0: there is none."""
    return max(map(_serial, published(directory)), default=0)


def highest_serial_at(url: str) -> int:
    """The same at a URL."""
    from elasticdl.ps.checkpoint.remote_checkpoint import fetch_folder

    return highest_serial(fetch_folder(url, small=_SMALL).path)


def versions(directory: Path) -> list[tuple[int, Path]]:
    """The checkpoints below a folder by step, the lowest first."""
    found = []
    for path in directory.iterdir() if directory.is_dir() else ():
        match = _NAME.match(path.name)
        if match and (path / MANIFEST).exists():
            found.append((int(match.group(1)), path))
    return sorted(found)


def values_folder(export: Path) -> Path:
    """Returns the folder of an exported model's values, in our form."""
    if not export.is_dir():
        return export.with_name(f"{export.name}.{EXPORT_FOLDER}")
    # TensorFlow keeps its hands off assets.extra in a SavedModel.
    return (export / "assets.extra" if (export / "saved_model.pb").exists() else export) / EXPORT_FOLDER


def find_checkpoint(place: str) -> Checkpoint:
    """The checkpoint meant by a path or URL: itself, the newest below it, or the one inside an export."""
    path = _fetch(place) if is_url(place) else Path(place)
    if not path.exists():
        raise UserError(
            f"There is no checkpoint at {place}: the path does not exist.",
            hint="Give the folder of --checkpoint_dir, one of its version-N folders, or an exported model.",
        )
    for candidate in (path, values_folder(path)):
        if (candidate / MANIFEST).exists():
            return read_checkpoint(candidate)
    if path.is_dir() and (found := _by_age(path)):
        return read_checkpoint(found[-1])
    raise UserError(
        f"There is no checkpoint at {place}: it has no {MANIFEST} and no version-N folder.",
        hint="Give the folder of --checkpoint_dir, one of its version-N folders, or an exported model.",
    )


def _fetch(url: str) -> Path:
    """Copies the checkpoint meant by a URL into the cache of this machine, with all that it needs."""
    # With pyarrow behind it.
    from elasticdl.ps.checkpoint.remote_checkpoint import fetch_folder, parent_and_name, sibling_url

    parent, name = parent_and_name(url)
    if _NAME.match(name):
        # The checkpoints that it needs are beside it.
        folder = fetch_folder(parent, small=_SMALL)
        chosen = folder.path / name
    else:
        folder = fetch_folder(url, small=_SMALL)
        exports = (folder.path / "assets.extra" / EXPORT_FOLDER, folder.path / EXPORT_FOLDER)
        places = [place for place in (folder.path, *exports) if (place / MANIFEST).exists()]
        if not places and not (places := _by_age(folder.path)):
            # An export that is one file has its values beside it.
            folder = fetch_folder(sibling_url(url, f".{EXPORT_FOLDER}"), small=_SMALL)
            places = [folder.path]
        chosen = places[-1]
    needed: list[Path] = []
    place: Path | None = chosen
    while place is not None and place not in needed:
        needed.append(place)
        folder.fetch(place)
        base, crc32 = _needs(place)
        place = find_base(place.parent, base, crc32) if base else None
    return chosen


def read_checkpoint(path: Path) -> Checkpoint:
    file = path / MANIFEST
    try:
        document = json.loads(file.read_text())
        if document["format"] not in (FORMAT, FORMAT_WITH_BASE):
            raise UserError(
                f"The checkpoint {path} has format {document['format']}; this version of ElasticDL reads formats up "
                f"to {FORMAT_WITH_BASE}.",
                hint="Use the version of ElasticDL that wrote it, or a later one.",
            )
        manifest = Manifest(
            step=int(document["step"]),
            files=tuple(SavedFile(**entry) for entry in document["files"]),
            attributes=dict(document["attributes"]),
            base=_base_in(document),
            base_crc32=int(document.get("base_crc32", 0)),
            ledger_crc32=None if (crc32 := document.get("ledger_crc32")) is None else int(crc32),
            serial=int(document.get("serial", 0)),
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
