"""The nearest right word, for everything a user may have mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest of the known words, and all of them if they are few."""
    words = sorted(known)
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    choices = f"Known are {', '.join(words)}." if words else "None is known."
    if not close:
        return choices if len(words) <= 20 else f"There are {len(words)}, such as {', '.join(words[:5])}."
    return f"Did you mean {close[0]}? {choices}" if len(words) <= 20 else f"Did you mean {close[0]}?"
