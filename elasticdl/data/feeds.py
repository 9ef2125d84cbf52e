"""Feeds that take many records at once: how a definition says so, and how it is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

_Feed = TypeVar("_Feed", bound=Callable[..., Any])


def batched(feed: _Feed) -> _Feed:
    """Marks a definition's feed as one that is given many records at once, an array a column:

        @batched
        def feed(columns, mode, metadata):
            return {"numbers": columns["numbers"], "ids": columns["ids"]}, columns["label"]

    It gives as many samples, in the same order. For models so small that what a sample costs on its way to them counts.
    """
    feed.takes_columns = True  # type: ignore[attr-defined]
    return feed


def takes_columns(feed: Callable[..., Any]) -> bool:
    return bool(getattr(feed, "takes_columns", False))
