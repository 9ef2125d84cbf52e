"""What of a server's memory is for rows. The server keeps to it; the master, which starts without NumPy, asks too,
before it lets their number shrink.
"""

from __future__ import annotations

# Messages, dense parameters and what changes while a checkpoint is written need some memory, too.
_ROWS_SHARE = 0.75


def room_for_rows(memory: int) -> int:
    """Bytes, of those that a server may use in all."""
    return int(_ROWS_SHARE * memory)


def room_beside_rows(for_rows: int) -> int:
    """What is left of the memory of a server that has so many bytes for rows."""
    return int(for_rows / _ROWS_SHARE) - for_rows
