"""The memory of tensors, kept for the next batch.

Every batch makes the same large arrays as the one before, and drops them. glibc gives the memory of such arrays back to
the system, which hands it out again page by page, each filled with zeros at its first touch. For a model that computes
little with much, as click models do, that is a good part of all it costs. So a worker keeps what it has dropped, up to
a limit: it holds as much as it needed at most, and no more than before at that time.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping

# mallopt(3).
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
# Arrays above this go back to the system all the same. It is the largest that glibc takes.
_LARGEST_KEPT = 32 << 20
# So much may lie at the end of the heap unused.
_MOST_KEPT = 1 << 30
_PREFIXES = ("MALLOC_", "GLIBC_TUNABLES")


def keep_memory(environment: Mapping[str, str] | None = None) -> bool:
    """Has this process keep memory from now on. False: the user has set this himself, or the C library is another."""
    variables = os.environ if environment is None else environment
    if any(name.startswith(_PREFIXES) for name in variables):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)) and bool(mallopt(_TRIM_THRESHOLD, _MOST_KEPT))
