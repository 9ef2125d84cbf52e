"""The journal: what the master writes down before it answers, so that it can be killed and come back.

A folder with one file that only grows, a line a record: the CRC-32 of the JSON text in hex, a space, the
text. The CRC of a line begins with that of the line before, so that no line can be missing between two others.
The first line of a file holds a snapshot of everything before it. How long the file has been is in another one,
`journal.end`. Compaction writes a new file that
begins with the present snapshot, gives it the next number, and removes the old one.

Failure modes
    Killed at any moment (SIGKILL): a record whose `append` has returned is in the kernel's hands and survives
    the process. One that was being written may be torn: an incomplete or damaged *last* line is cut off when
    the journal is opened, and counted in `dropped_bytes`; no call was answered on it. Damage anywhere
    else cannot come from a kill, and raises `JournalError` with file and line: a journal with a hole is never
    replayed.

    Complete lines missing at the end (a disk that was repaired, a file that was copied back): the file is shorter
    than `journal.end` says. The journal opens, and `has_lost_end` tells the master to ask the nodes what they
    remember. The file gone: `is_lost`.

    Killed during compaction: the new file gets its name only when it is complete and on disk, and the old one
    goes only after that. What is half written has another name and is removed when the journal is opened.

    Machine lost (power, kernel): only what was synced survives. To sync each record would cost a disk access
    per answer, to save work in the one case where all nodes on the machine, and the training with them, are
    gone too. So it happens at most every `fsync_seconds` while appending, when a snapshot is written, and at
    the end; with 0 it is done for every append, for folders on storage that outlives the machine.

    Disk full: `UserError`, and the part of the line that did fit is cut off again, so that the journal is as
    it was and can be appended to when there is room. Nothing may be answered on a record that was not
    written.

    Two masters: the second one gets a `JournalTaken`; the kernel drops the lock with the process, however it
    dies.

    The lock of a lost machine: a file server may keep it for minutes, or forever. So a `holder` writes into the
    lock's file who it is, and a heartbeat every few seconds. A master that sees (`journal_takeover.py`) that it is gone
    may take the journal `by_force`: it puts another file in the place of that one. A holder that was only out of reach
    finds that out before it writes again, and gets a `JournalTaken` itself.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from elasticdl.errors import UserError

Record = dict[str, Any]

_FORMAT = 2
# The lines of this one are not chained.
_UNCHAINED = 1
_PARTIAL = ".partial"
# NaN and Infinity are written as Python reads them: the loss of a training that diverged is one.
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LOCK = "journal.lock"
_END = "journal.end"
# The bits of the size of a file in `Journal.end`.
_SIZE_BITS = 40
# A holder that has not shown itself for so long looks whether the journal is still its own before it writes.
_UNSURE_SECONDS = 20.0


class JournalError(UserError):
    """The journal cannot be used as it is."""


class JournalTaken(JournalError):
    """Another master has taken over the journal."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """The writer of a journal; `beat`, its heartbeat, grows for as long as it writes."""

    pod: str
    uid: str
    # As its own clock says.
    since: float
    beat: int = 0


class Journal:
    """The journal in a folder, opened for writing; there is only one of these at a time."""

    def __init__(
        self,
        folder: Path | str,
        *,
        fsync_seconds: float | None = 1.0,
        clock: Callable[[], float] = time.monotonic,
        holder: Holder | None = None,
        by_force: bool = False,
    ) -> None:
        """`fsync_seconds`: see above; None leaves it to compaction and close. `by_force`: the holder of the lock is
        known to be gone. A `holder` has to `beat`.
        """
        self.folder = Path(folder)
        # The bytes of a torn line that were removed when the journal was opened.
        self.dropped_bytes = 0
        # Complete lines are missing at the end, or may be.
        self.has_lost_end = False
        # There was a journal in this folder, and its file is gone.
        self.is_lost = False
        # There was no file.
        self.is_new = False
        self._end_file = -1
        # The CRC of the last line, with which the next one's begins if lines are chained.
        self._crc = 0
        self._is_chained = True
        self._fsync_seconds = fsync_seconds
        self._clock = clock
        self._file = -1
        # Why nothing can be written any more.
        self._broken = ""
        self._holder = holder
        self._beaten = clock()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (_locked_by_force if by_force else _locked)(self.folder / _LOCK)
        except OSError as error:
            raise self._cannot_write(error) from error
        try:
            self._open()
            self.beat()
        except BaseException:
            self._abandon()
            raise

    def _open(self) -> None:
        try:
            for partial in self.folder.glob(f"journal-*{_PARTIAL}"):
                partial.unlink()
            numbered = _numbered(self.folder)
            known_end = _read_end(self.folder)
            self._end_file = os.open(self.folder / _END, os.O_WRONLY | os.O_CREAT, 0o600)
            self.is_new = not numbered
            if self.is_new:
                self.is_lost = known_end is not None
                self._start_file(1 if known_end is None else known_end[0] + 1, None)
                numbered = _numbered(self.folder)
            self._number, self._path = numbered[-1]
            found = _verify(self._path)
            self._follow(found)
            self.dropped_bytes = found.dropped_bytes
            # Empty ones and those of earlier versions have no such file.
            self.has_lost_end = known_end is not None and (self._number, found.end) < known_end
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
            if self.dropped_bytes:
                os.ftruncate(self._file, found.end)
            self._note_end()
            # Left behind by a compaction that was killed after it had made the new file.
            for _, old in numbered[:-1]:
                old.unlink()
        except OSError as error:
            raise self._cannot_write(error) from error
        self._synced_at = self._clock()

    @property
    def size(self) -> int:
        """Bytes of the present file, the snapshot included."""
        return self._size

    @property
    def end(self) -> int:
        """Grows with every record, from one file to the next, too."""
        return (self._number << _SIZE_BITS) + self._size

    @property
    def records(self) -> int:
        """Records since the last snapshot."""
        return self._records

    # -- reading ---------------------------------------------------------------------------------------------

    def read(self) -> tuple[Record | None, Iterator[Record]]:
        """The last snapshot (None if there never was one), and the records appended since, in order."""
        return _read(self._path, self._size)

    # -- writing ---------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        self._write([record])

    def append_many(self, records: Iterable[Record]) -> None:
        """Appends records in one write, which is much faster. A kill may leave only the first few of them."""
        given = list(records)
        if given:
            self._write(given)

    def sync(self) -> None:
        """Makes everything appended survive even the loss of power."""
        self._check_usable()
        try:
            os.fsync(self._file)
        except OSError as error:
            # After a failed fsync the content of the disk is unknown, and a second one would not say.
            self._broken = f"the disk failed: {error.strerror}"
            raise self._cannot_write(error) from error
        self._synced_at = self._clock()

    def beat(self) -> None:
        """Shows that the holder is alive. Raises `JournalTaken` if the journal was taken from it."""
        if self._holder is None or self._file < 0:
            return
        path = self.folder / _LOCK
        if not _same_file(self._lock, path):
            self._broken = "another master has taken it over"
            raise JournalTaken(f"Another master has taken over the journal in {self.folder}.")
        self._holder = replace(self._holder, beat=self._holder.beat + 1)
        try:
            os.ftruncate(self._lock, os.pwrite(self._lock, _encode(asdict(self._holder)).encode(), 0))
        except OSError as error:
            raise self._cannot_write(error) from error
        self._beaten = self._clock()

    def compact(self, snapshot: Record) -> None:
        """Replaces all that was written by a snapshot of what it amounts to."""
        self._check_usable()
        self.beat()
        try:
            path = self._start_file(self._number + 1, snapshot)
            file = os.open(path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise self._cannot_write(error) from error
        old = self._path
        os.close(self._file)
        self._file, self._path, self._number = file, path, self._number + 1
        self._follow(_verify(path))
        self._note_end()
        self._synced_at = self._clock()
        old.unlink(missing_ok=True)

    def close(self) -> None:
        """Syncs, and lets the next one write. Closing twice is harmless."""
        if self._file < 0:
            return
        try:
            if not self._broken:
                self.sync()
        finally:
            self._abandon()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- inside ----------------------------------------------------------------------------------------------

    def _write(self, records: Sequence[Record]) -> None:
        self._check_usable()
        crc, lines = self._crc, []
        for record in records:
            crc, line = _line(record, crc if self._is_chained else 0)
            lines.append(line)
        data = b"".join(lines)
        if self._holder is not None and self._clock() - self._beaten >= _UNSURE_SECONDS:
            self.beat()
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:] if written else data)
        except OSError as error:
            self._undo()
            raise self._cannot_write(error) from error
        self._size += len(data)
        self._records += len(records)
        self._crc = crc
        self._note_end()
        if self._fsync_seconds is not None and self._clock() - self._synced_at >= self._fsync_seconds:
            self.sync()

    def _follow(self, found: _Verified) -> None:
        """Continues the journal: from now on lines are appended behind the verified ones."""
        self._size, self._records = found.end, found.records
        self._crc, self._is_chained = found.crc, found.is_chained

    def _note_end(self) -> None:
        """Writes the end of the journal after the lines: a kill in between leaves an end that is too early, which is
        harmless.
        """
        try:
            os.pwrite(self._end_file, b"%012d %020d\n" % (self._number, self._size), 0)
        except OSError as error:
            raise self._cannot_write(error) from error

    def _undo(self) -> None:
        """Cuts off what was written of a line: the next one would be glued to it."""
        try:
            os.ftruncate(self._file, self._size)
        except OSError as error:
            self._broken = f"a torn line could not be removed: {error.strerror}"

    def _start_file(self, number: int, snapshot: Record | None) -> Path:
        path = self.folder / f"journal-{number:06d}.log"
        partial = path.with_name(path.name + _PARTIAL)
        try:
            with open(partial, "wb") as file:
                file.write(_line({"format": _FORMAT, "snapshot": snapshot})[1])
                file.flush()
                os.fsync(file.fileno())
            os.rename(partial, path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        _sync_folder(self.folder)
        return path

    def _check_usable(self) -> None:
        if self._file < 0:
            raise JournalError(f"The journal in {self.folder} is closed.")
        if self._broken:
            raise JournalError(f"The journal in {self.folder} cannot be written: {self._broken}.")

    def _cannot_write(self, error: OSError) -> UserError:
        why = "the disk is full" if error.errno in _FULL else error.strerror or str(error)
        hint = "Make room there. A new job can start from the last checkpoint (--checkpoint_dir_for_init)."
        return UserError(
            f"The journal in {self.folder} cannot be written: {why}.",
            hint=hint if error.errno in _FULL else "",
        )

    def _abandon(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        if self._end_file >= 0:
            os.close(self._end_file)
            self._end_file = -1
        os.close(self._lock)


def read_folder(folder: Path | str) -> tuple[Record | None, Iterator[Record]]:
    """Reads the journal in a folder without locking or repairing it: for looking at other jobs."""
    numbered = _numbered(Path(folder))
    if not numbered:
        return None, iter(())
    path = numbered[-1][1]
    return _read(path, _verify(path).end)


def holder_of(folder: Path | str) -> Holder | None:
    """Returns the holder of the journal in a folder, if it is known."""
    try:
        return Holder(**json.loads((Path(folder) / _LOCK).read_text()))
    except (OSError, ValueError, TypeError):
        return None


# -- lines and files -----------------------------------------------------------------------------------------


def _line(record: Record, before: int = 0) -> tuple[int, bytes]:
    """The CRC of a line and the line, behind one with another CRC."""
    text = _encode(record).encode()
    crc = zlib.crc32(text, before)
    return crc, b"%08x %b\n" % (crc, text)


def _sound(line: bytes, before: int) -> int | None:
    """The CRC of a complete line; None if it is damaged, or not the one behind the line with the CRC `before`."""
    crc = zlib.crc32(line[9:-1], before)
    return crc if line[-1:] == b"\n" and line[:9] == b"%08x " % crc else None


def _chained(line: bytes) -> bool:
    """Whether the CRC of each line begins with that of the line before, by the first line of a file."""
    return line[9:].startswith(b'{"format":%d,' % _FORMAT)


def _read_end(folder: Path) -> tuple[int, int] | None:
    """The number of the last file and its size; None if that was never noted."""
    try:
        number, size = (folder / _END).read_bytes().split()
        return int(number), int(size)
    except (FileNotFoundError, ValueError):
        return None


def _numbered(folder: Path) -> list[tuple[int, Path]]:
    found = ((path.stem.rpartition("-")[2], path) for path in folder.glob("journal-*.log"))
    return sorted((int(number), path) for number, path in found if number.isdigit())


@dataclass(frozen=True, kw_only=True)
class _Verified:
    """The verified content of a file: the end of its last whole line, records, and the bytes of a torn line after
    that.
    """

    end: int
    records: int
    dropped_bytes: int
    is_chained: bool
    # The CRC of the last whole line; 0 where lines are not chained.
    crc: int


def _verify(path: Path) -> _Verified:
    end = 0
    damaged = 0
    count = 0
    before = 0
    is_chained = True
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if damaged:
                raise _damage(path, damaged)
            if number == 1:
                is_chained = _chained(line)
            found = _sound(line, before)
            if found is None:
                damaged = number
            else:
                end += len(line)
                count = number
                before = found if is_chained else 0
        size = file.tell()
    # The first line was complete before the file got its name.
    if count == 0:
        raise _damage(path, 1)
    return _Verified(end=end, records=count - 1, dropped_bytes=size - end, is_chained=is_chained, crc=before)


def _read(path: Path, end: int) -> tuple[Record | None, Iterator[Record]]:
    lines = _lines(path, end)
    header: Record = next(lines, {})
    if header.get("format") not in (_FORMAT, _UNCHAINED):
        raise JournalError(
            f"{path} is no journal that this version can read (format {header.get('format')})."
        )
    return header["snapshot"], lines


def _lines(path: Path, end: int) -> Iterator[Record]:
    at = before = 0
    is_chained = True
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if at >= end:
                return
            if number == 1:
                is_chained = _chained(line)
            crc = _sound(line, before)
            if crc is None:
                raise _damage(path, number)
            before = crc if is_chained else 0
            at += len(line)
            yield json.loads(line[9:-1])


def _damage(path: Path, number: int) -> JournalError:
    return JournalError(
        f"The journal {path} is damaged at line {number}, or lines before it are missing: no kill can have done that.",
        hint="Look at the disk. A new job can start from the last checkpoint.",
    )


def _locked(path: Path) -> int:
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise JournalTaken(f"Another master is writing the journal in {path.parent}.") from None
        except OSError:
            os.close(file)
            raise
        # Between the two another may have put its own file there.
        if _same_file(file, path):
            return file
        os.close(file)


def _locked_by_force(path: Path) -> int:
    """Locks another file in its place: the lock of the old file stays with its holder, and means nothing any more."""
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(fresh, path)
    except OSError:
        os.close(file)
        fresh.unlink(missing_ok=True)
        raise
    return file


def _same_file(file: int, path: Path) -> bool:
    # Opened, and not only looked at: network file systems remember for a while what was at a path.
    try:
        there = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return os.path.samestat(os.fstat(there), os.fstat(file))
    finally:
        os.close(there)


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
