"""No search for garbage while a framework is imported, and none in what it has made.

An import makes hundreds of thousands of objects that stay, and Python goes through all of them again and again to see
whether some can go: with TensorFlow that is a fifth of the time, twice a fifth of a second before the first batch, and
as long a pause of the training whenever it looks through everything. A worker that takes another's place is waited for.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """Unreachable cycles stay in memory until the end of the block. What the user's program sets meanwhile
    is left as it is.
    """
    before = gc.get_threshold()
    during = (0, *before[1:])
    gc.set_threshold(*during)
    try:
        yield
    finally:
        if gc.get_threshold() == during:
            gc.set_threshold(*before)


def keep_all() -> None:
    """Excludes all present objects from garbage collection. Call it before there are objects that may be freed, such as
    a model: excluded reference cycles are never freed.
    """
    gc.freeze()
