"""Pieces of Markdown that several pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def opening(title: str, source: str, text: str) -> list[str]:
    """Returns the first lines of a page. `source`: where to change what the page says."""
    return [
        f"# {title}",
        "",
        f"<!-- Written by `make reference`: change {source}, not this page. -->",
        "",
        text,
        "",
    ]


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", f"| {' | '.join('---' for _ in heads)} |"]
    lines += [f"| {' | '.join(cell(text) for text in row)} |" for row in rows]
    return [*lines, ""]


def cell(text: str) -> str:
    """Returns a text that stays in its cell."""
    return " ".join(text.replace("|", "\\|").split())


def code(text: str) -> str:
    return f"`{text}`" if text else ""
