"""Decides which checkpoints are complete, and which store only the changed rows of tables.

Changes are much smaller than tables of which a part is trained, and are written in as much less time. But every one of
them has to be read again, and kept, as long as a later one is needed: so there are not too many in a row, and not many
bytes. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass

# Of the bytes of the last whole checkpoint, what the changes since then may add up to. Reading them takes time when
# all nodes wait, and by then there is little to be saved any more.
_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class PublishedCheckpoint:
    """A checkpoint that is there."""

    folder: str
    manifest_crc32: int
    # Under which name servers froze what is in it, and in which generation.
    copy: str
    generation: int


class Increments:
    """The checkpoints of one job."""

    def __init__(self, most: int) -> None:
        """`most`: so many of changes in a row."""
        self._most = most
        self._last: PublishedCheckpoint | None = None
        self._whole_bytes = self._changed_bytes = self._in_a_row = 0

    def base(self, generation: int) -> PublishedCheckpoint | None:
        """Returns the base of the next checkpoint; None: it is to be complete."""
        if self._last is None or self._last.generation != generation:
            return None
        if self._in_a_row >= self._most or self._changed_bytes > _SHARE * self._whole_bytes:
            return None
        return self._last

    def add(self, published: PublishedCheckpoint, *, size: int, complete: bool) -> None:
        """A checkpoint of so many bytes; not `complete`: it builds on the one before."""
        self._last = published
        if complete:
            self._whole_bytes, self._changed_bytes, self._in_a_row = size, 0, 0
        else:
            self._changed_bytes += size
            self._in_a_row += 1
