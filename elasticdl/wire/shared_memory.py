"""Memory that two processes of one machine map, for the bodies of frames between them.

A socket copies data into the system and out of it again, in small pieces. Between processes of one machine the numbers
can be in memory that both have mapped, and the socket only carries their place.

The client creates the memory and offers it: by its process, its descriptor, and a secret that is written in it. A
server that cannot open it, or finds another secret there, is elsewhere (another machine, another container), and
refuses; then everything goes through the socket. Such memory has no name that could be left behind: it is freed with
the processes that map it. It cannot be made smaller, so that reading it never fails.
"""

from __future__ import annotations

import errno
import fcntl
import hmac
import mmap
import os
import secrets
import struct

_OFFER = struct.Struct("<IIQ32s")
_SECRET_BYTES = 32
# The secret has it to itself.
_START = mmap.PAGESIZE
# The size of each part: larger bodies go through the socket. The system allocates only used pages.
_SIZE = 64 << 20


def _is_there() -> bool:
    """Pythons that were built for old systems have none of it, wherever they run."""
    return hasattr(os, "memfd_create") and hasattr(fcntl, "F_ADD_SEALS")


class NotShared(Exception):
    """The memory cannot be had here."""


class Segment:
    """Two parts of the same size: one for what goes to the server, one for what comes from it."""

    def __init__(self, descriptor: int) -> None:
        """Raises `OSError` if there is no such memory."""
        whole = memoryview(mmap.mmap(descriptor, _START + 2 * _SIZE))
        self.secret = whole[:_SECRET_BYTES]
        self.to_server = whole[_START : _START + _SIZE]
        self.to_client = whole[_START + _SIZE :]


class Offered:
    """A new segment, and where the other side finds it until this is closed."""

    def __init__(self) -> None:
        """Raises `OSError` if the system, or this Python, has no such memory."""
        if not _is_there():
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        self._descriptor = os.memfd_create("elasticdl", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._descriptor, _START + 2 * _SIZE)
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
            self.segment = Segment(self._descriptor)
        except BaseException:
            self.close()
            raise
        self.segment.secret[:] = secrets.token_bytes(_SECRET_BYTES)
        self.words = _OFFER.pack(os.getpid(), self._descriptor, _SIZE, bytes(self.segment.secret))

    def close(self) -> None:
        """The memory stays for processes that have mapped it."""
        os.close(self._descriptor)


def accept(words: bytes) -> Segment:
    """The segment that was offered. Raises `NotShared` if it is not to be had here."""
    if not _is_there():
        raise NotShared("this Python has no such memory")
    try:
        process, number, size, secret = _OFFER.unpack(words)
        descriptor = os.open(f"/proc/{process}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
    except (struct.error, OSError) as error:
        raise NotShared(str(error)) from error
    try:
        # Another file with that number on this machine cannot be shrunk meanwhile, or is not ours.
        if not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            raise NotShared("it is other memory")
        if size != _SIZE or os.fstat(descriptor).st_size != _START + 2 * _SIZE:
            raise NotShared("it is of another size")
        segment = Segment(descriptor)
    except (OSError, ValueError) as error:
        raise NotShared(str(error)) from error
    finally:
        os.close(descriptor)
    if not hmac.compare_digest(bytes(segment.secret), secret):
        raise NotShared("it belongs to another job")
    return segment
