"""The site of `make docs`: every page has a place in its navigation, and its check finds what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.site.checker import problems

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"


class _Loader(yaml.SafeLoader):
    """Ignores the functions that mkdocs.yml names."""


_Loader.add_multi_constructor("", lambda loader, suffix, node: None)


def _pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from _pages(value)


def _navigation() -> list[Any]:
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=_Loader)["nav"]
    assert isinstance(nav, list)
    return nav


def test_navigation_has_all_sections() -> None:
    assert [next(iter(entry)) for entry in _navigation()] == [
        "Get started",
        "Tutorials",
        "How-to",
        "Concepts",
        "Reference",
        "Operations",
        "Contributing",
    ]


def test_every_page_has_one_place_in_the_navigation() -> None:
    listed = sorted(_pages(_navigation()))
    pages = [*DOCS.glob("*.md"), *(DOCS / "reference").glob("*.md"), DOCS / "decisions" / "README.md"]
    assert listed == sorted(str(page.relative_to(DOCS)) for page in pages), "`nav` of mkdocs.yml"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "style.css").write_text("body { color: red }")
    (tmp_path / "other.html").write_text('<h1 id="there">Other</h1>')
    return tmp_path


@pytest.mark.parametrize(
    "html",
    [
        '<a href="other.html#there">whole</a> <a href="https://elsewhere.example">link</a>',
        '<link rel="stylesheet" href="style.css"><a href="#here" id="here">x</a>',
        '<link rel="canonical" href="https://elsewhere.example/page.html">',
        '<img src="data:image/png;base64,AAAA">',
    ],
)
def test_good_page_has_no_problems(site: Path, html: str) -> None:
    (site / "index.html").write_text(html)
    assert list(problems(site)) == []


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        ('<a href="missing.html">x</a>', "index.html: missing.html: there is no such file."),
        ('<a href="other.html#missing">x</a>', "index.html: other.html#missing: there is no such heading."),
        ('<img src="missing.png">', "index.html: missing.png: there is no such file."),
        (
            '<script src="https://cdn.example/a.js"></script>',
            "index.html: loads https://cdn.example/a.js from another server.",
        ),
        (
            '<link rel="stylesheet" href="//fonts.example/a.css">',
            "index.html: loads //fonts.example/a.css from another server.",
        ),
    ],
)
def test_problem_is_found(site: Path, html: str, problem: str) -> None:
    (site / "index.html").write_text(html)
    assert list(problems(site)) == [problem]


def test_style_sheet_with_a_font_of_another_server_is_found(site: Path) -> None:
    (site / "style.css").write_text("@font-face { src: url(https://fonts.example/a.woff2) }")
    assert list(problems(site)) == ["style.css: loads something from another server."]
