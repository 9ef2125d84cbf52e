"""Bodies of frames in a segment: where one side puts its own, and where it finds the other's.

On a connection for calls there is one body in each direction at most, and a call is over before the next begins. Where
frames follow each other without an answer, several are under way (`Ring`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from elasticdl.wire.shared_memory import Segment

Part = bytes | bytearray | memoryview

# Below that it costs less to send a body than to look for it elsewhere.
LEAST = 64 << 10
_ALIGNMENT = 64


class SharedBodies:
    """The shared memory of one side of a connection."""

    def __init__(self, segment: Segment, *, serves: bool, answered: bool = True) -> None:
        """`serves`: it is the side that was offered the segment. `answered`: frames are, before the next is sent."""
        both = (segment.to_server, segment.to_client)
        self._incoming, self._outgoing = both if serves else reversed(both)
        self._ring = None if answered else Ring(len(self._outgoing))
        self._reserved: memoryview | None = None

    def reserve(self, size: int) -> memoryview | None:
        """Room for a body of that size, if it is one that belongs here. Only where frames are answered."""
        if not LEAST <= size <= len(self._outgoing):
            return None
        self._reserved = self._outgoing[:size]
        return self._reserved

    def put(self, body: Sequence[Part], size: int, ticket: int) -> int | None:
        """Writes a body, and returns its offset; None: it does not belong here, or there is no room. A reserved body is
        there already.
        """
        if not LEAST <= size <= len(self._outgoing):
            return None
        at = 0 if self._ring is None else self._ring.place(size, ticket)
        if at is not None and body[0] is not self._reserved:
            copy(self._outgoing[at:], body)
        return at

    def look(self, at: int, size: int) -> memoryview | None:
        """A body of the other side; None: there can be none."""
        return self._incoming[at : at + size] if at + size <= len(self._incoming) else None

    def release(self, ticket: int) -> None:
        """The other side has no need any more for bodies up to this one."""
        if self._ring is not None:
            self._ring.release(ticket)


class Ring:
    """Allocates parts of a segment for several bodies in flight, which are freed in the order of their allocation.

    One thread may place while another releases.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._lock = threading.Lock()
        # By what they are released, where they start and where they end.
        self._placed: deque[tuple[int, int, int]] = deque()

    def place(self, size: int, ticket: int) -> int | None:
        """Returns the offset of a body until its ticket, or a later one, is released; None: there is no room."""
        size = -(-size // _ALIGNMENT) * _ALIGNMENT
        with self._lock:
            start = self._find(size)
            if start is not None:
                self._placed.append((ticket, start, start + size))
            return start

    def _find(self, size: int) -> int | None:
        # With nothing under way from the start again: memory that was used before is there already.
        first, last = (self._placed[0][1], self._placed[-1][2]) if self._placed else (self._size, 0)
        if last <= first:
            return last if last + size <= first else None
        if last + size <= self._size:
            return last
        return 0 if size <= first else None

    def release(self, ticket: int) -> None:
        with self._lock:
            while self._placed and self._placed[0][0] <= ticket:
                self._placed.popleft()


def copy(target: memoryview, parts: Iterable[Part]) -> None:
    """Parts one behind the other; while it copies other threads go on."""
    at = 0
    for part in parts:
        size = len(part)
        if size:
            np.copyto(
                np.frombuffer(target[at : at + size], np.uint8), np.frombuffer(part, np.uint8), casting="no"
            )
        at += size
