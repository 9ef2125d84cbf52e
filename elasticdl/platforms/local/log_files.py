"""The log of a node: its output, written to a file of bounded size and read from its end.

A node writes into a pipe that the keeper empties into `NAME.log`. When that reaches its limit it becomes
`NAME.log.1` (the one before is dropped) and a new one is begun, always between two lines. So the newest
output is never lost: at least one limit's worth of it is there, and at most two. It is a pipe and not the
file itself because only so can the size be bounded, and because a program must not die of a full disk for
having printed something: when the disk is full, first the older half of the log is given up, then output is
dropped, and the log says how much once it can be written again.

Beside each log is `.NAME.log.times`, which has for every second with output the offset at which it begins. So the
logs of several nodes can be merged by time, whatever programs print. It is a help for readers: if it cannot be
written or is missing, lines have no time, and nothing else changes.
"""

from __future__ import annotations

import bisect
import io
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

LOG_BYTES = 64 * 1024 * 1024

# More than the lines a user requests, less than would be felt when read.
_LONGEST_TAIL = 1024 * 1024

# The last output is also kept in memory, for the message that says why a node ended.
_NEWEST_BYTES = 4096

# An entry of the file of times: offset in the log, seconds since 1970.
_TIME = struct.Struct("<Qd")
_TIME_RESOLUTION_SECONDS = 1.0


def log_path(folder: Path, node: str) -> Path:
    return folder / f"{node}.log"


def _older(path: Path) -> Path:
    return path.with_name(path.name + ".1")


def _times_path(path: Path) -> Path:
    """Hidden, so that it is not taken for a log."""
    return path.with_name(f".{path.name}.times")


class LogWriter:
    """Appends to a log. Only opening it can fail; what cannot be written later is counted."""

    def __init__(self, path: Path, *, limit: int = LOG_BYTES, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._limit = limit
        self._clock = clock
        self._noted_at = 0.0
        self._newest = b""
        self._lost = 0
        self._fd = -1
        self.trouble = ""  # why the log cannot be written at present
        self._open()

    def write(self, data: bytes) -> None:
        self._newest = (self._newest + data)[-_NEWEST_BYTES:]
        if self._size + len(data) > self._limit:
            # The old file ends with a whole line, and is a little too long for it; without a line in sight,
            # the limit counts for more.
            cut = data.rfind(b"\n") + 1
            if cut or self._size > 2 * self._limit:
                self._append(data[:cut])
                data = data[cut:]
                self._rotate()
        self._append(data)

    def last_line(self) -> str:
        lines = self._newest.decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        self._size = os.fstat(self._fd).st_size

    def _rotate(self) -> None:
        try:
            os.replace(self._path, _older(self._path))
            self._rotate_times()
            self.close()
            self._open()
        except OSError as error:
            self.trouble = f"{self._path}: {error.strerror}"
            # Growing too long is better than losing lines; where there is no file, the next turn tries again.
            self._size = 0

    def _append(self, data: bytes) -> None:
        if not data:
            return
        self._note_time()
        if self._lost:
            note = f"[{self._lost} bytes of output could not be written]\n".encode()
            if self._write(note):
                self._lost += len(data)
                return
            self._lost = 0
        self._lost += self._write(data)

    def _note_time(self) -> None:
        """Notes the time before the output is written, so that readers of the output find it."""
        now = self._clock()
        if abs(now - self._noted_at) < _TIME_RESOLUTION_SECONDS:
            return
        self._noted_at = now
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            file = os.open(_times_path(self._path), flags, 0o600)
            try:
                os.write(file, _TIME.pack(self._size, now))
            finally:
                os.close(file)
        except OSError:
            # Lines of this second count as of the one before.
            return

    def _rotate_times(self) -> None:
        self._noted_at = 0.0
        try:
            os.replace(_times_path(self._path), _times_path(_older(self._path)))
        except OSError:
            # Times of another log would be wrong ones.
            _times_path(_older(self._path)).unlink(missing_ok=True)

    def _write(self, data: bytes) -> int:
        """Tells how many bytes could not be written."""
        view = memoryview(data)
        for last_try in (False, True):
            try:
                if self._fd < 0:
                    self._open()
                while view:
                    written = os.write(self._fd, view)
                    self._size += written
                    view = view[written:]
            except OSError as error:
                self.trouble = f"{self._path}: {error.strerror}"
                if not last_try:
                    _older(self._path).unlink(missing_ok=True)
            else:
                self.trouble = ""
                break
        return len(view)


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a log, without their line ends; none if there is no such log."""
    if lines <= 0:
        return []
    data = _read_end(path)
    if data.count(b"\n") <= lines and len(data) < _LONGEST_TAIL:
        data = _read_end(_older(path)) + data
    # Not splitlines(): progress bars overwrite themselves with '\r', and form feeds are no lines either.
    return data.decode(errors="replace").removesuffix("\n").split("\n")[-lines:] if data else []


def _read_end(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _LONGEST_TAIL))
            return file.read(_LONGEST_TAIL)
    except FileNotFoundError:
        return b""


class LogReader:
    """Reads a log piece by piece, also while it grows and is turned over. It may not be there yet."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        self._path = path
        older = None if from_end else _open_raw(_older(path))
        self._file = older or _open_raw(path)
        self._times = _Times(_older(path) if older else path)
        if from_end and self._file is not None:
            self._file.seek(0, os.SEEK_END)

    def read_timed(self) -> list[tuple[float | None, bytes]]:
        """Like `read`, in pieces of one second each. Without a time where none is known."""
        data = self.read()
        if self._file is None or not data:
            return []
        return self._times.split(data, self._file.tell() - len(data))

    def read(self) -> bytes:
        """Reads the output since the last call, up to some size."""
        if self._file is None:
            self._file = _open_raw(self._path)
            self._times = _Times(self._path)
        if self._file is None:
            return b""
        data = self._file.read(_LONGEST_TAIL)
        if data:
            return data
        newer = self._newer(self._file)
        if newer is None:
            return b""
        # The last output may have been written between the empty read and the turn-over.
        data = self._file.readall()
        if data:
            # The newer file is found by the next call.
            newer.close()
            return data
        self._file.close()
        self._file = newer
        is_older = _is_file(newer, _older(self._path))
        self._times = _Times(_older(self._path) if is_older else self._path)
        return newer.read(_LONGEST_TAIL) or b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _newer(self, file: io.FileIO) -> io.FileIO | None:
        """Returns the file after the one that has been read to its end."""
        held = os.fstat(file.fileno())
        candidate = _open_raw(self._path)
        if candidate is None:
            return None
        if os.path.samestat(held, os.fstat(candidate.fileno())):
            candidate.close()
            return None
        between = _open_raw(_older(self._path))
        if between is None or os.path.samestat(held, os.fstat(between.fileno())):
            return candidate
        # Turned over more than once since the last call.
        candidate.close()
        return between


def _open_raw(path: Path) -> io.FileIO | None:
    try:
        return io.FileIO(path, "r")
    except FileNotFoundError:
        return None


def _is_file(file: io.FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


class _Times:
    """The times of one log file, which may grow. The file is held open, so that it stays that of the log."""

    def __init__(self, log: Path) -> None:
        self._path = _times_path(log)
        self._file = _open_raw(self._path)
        self._offsets: list[int] = []
        self._moments: list[float] = []

    def split(self, data: bytes, start: int) -> list[tuple[float | None, bytes]]:
        """Returns the output that begins at that offset, cut where another second begins."""
        self._read()
        end, pieces = start + len(data), []
        index = bisect.bisect_right(self._offsets, start) - 1
        position = start
        while position < end:
            following = self._offsets[index + 1] if index + 1 < len(self._offsets) else end
            cut = min(max(following, position), end)
            moment = self._moments[index] if index >= 0 else None
            if cut > position:
                pieces.append((moment, data[position - start : cut - start]))
            position, index = cut, index + 1
        return pieces

    def _read(self) -> None:
        if self._file is None:
            self._file = _open_raw(self._path)
        data = self._file.readall() if self._file is not None else b""
        whole = len(data) - len(data) % _TIME.size
        if self._file is not None and whole != len(data):
            self._file.seek(whole - len(data), os.SEEK_CUR)
        for offset, moment in _TIME.iter_unpack(data[:whole]):
            self._offsets.append(offset)
            self._moments.append(moment)
