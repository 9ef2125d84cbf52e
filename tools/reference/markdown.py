"""Pieces of Markdown that several pages are made of."""

from __future__ import annotations

import re
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


def with_contents(text: str) -> str:
    """Returns a page with links to its sections before the first of them."""
    headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
    links = [f"[{heading.replace('`', '')}](#{_anchor(heading)})" for heading in headings]
    before, _, after = text.partition("\n## ")
    return f"{before}\n{_joined(links)}\n\n## {after}"


def _joined(links: Sequence[str]) -> str:
    lines = [""]
    for link in links:
        if lines[-1] and len(lines[-1]) + len(link) > 110:
            lines.append("")
        lines[-1] += f" · {link}" if lines[-1] else link
    return " ·\n".join(lines)


def _anchor(heading: str) -> str:
    """Returns the anchor of a heading, in the repository and on the site."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def cell(text: str) -> str:
    """Returns a text that stays in its cell."""
    return " ".join(text.replace("|", "\\|").split())


def code(text: str) -> str:
    return f"`{text}`" if text else ""
