"""The part of a server's memory that is for rows. The server enforces it; the master, which starts without NumPy,
checks it before it scales servers down.
"""

from __future__ import annotations

# Messages, dense parameters and what changes while a checkpoint is written need some memory, too.
_ROWS_SHARE = 0.75


def room_for_rows(memory: int) -> int:
    """Bytes, of those that a server may use in all."""
    return int(_ROWS_SHARE * memory)


def room_beside_rows(for_rows: int) -> int:
    """Returns the rest of the memory of a server that has so many bytes for rows."""
    return int(for_rows / _ROWS_SHARE) - for_rows
