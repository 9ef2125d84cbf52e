"""A Markdown extension: links from a page to a file outside of docs/ lead to that file in the repository.

The pages are also read in the repository, where `../model_zoo/x.py` works. Zensical and MkDocs load this module by its
name in mkdocs.yml, with the root of the repository as working folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor

REPOSITORY = "https://github.com/sql-machine-learning/elasticdl"
_UPWARDS = re.compile(r"^(?:\.\./)+")


def source_address(link: str, root: Path) -> str | None:
    """Returns the address of a file outside of docs/. None: the link leads to a page, or elsewhere."""
    path, _, anchor = link.partition("#")
    if not _UPWARDS.match(path):
        return None
    name = _UPWARDS.sub("", path)
    if (root / "docs" / name).exists() or not (root / name).exists():
        return None
    kind = "tree" if (root / name).is_dir() else "blob"
    return f"{REPOSITORY}/{kind}/main/{name}{f'#{anchor}' if anchor else ''}"


class _SourceLinks(Treeprocessor):  # type: ignore[misc]
    def run(self, root: Element) -> None:
        for link in root.iter("a"):
            if address := source_address(link.get("href", ""), Path.cwd()):
                link.set("href", address)


class SourceLinks(Extension):  # type: ignore[misc]
    def extendMarkdown(self, md: Markdown) -> None:
        # After inline patterns (20) have made the links, before the site generator resolves them (0).
        md.treeprocessors.register(_SourceLinks(md), "source_links", 15)


def makeExtension(**options: Any) -> SourceLinks:
    return SourceLinks(**options)
