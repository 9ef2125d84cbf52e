"""What a page points to is there: files, headings, pictures; and every page can be reached from the first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"", re.DOTALL)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def _links(page: Path) -> list[str]:
    """Those to files of the project."""
    text = _BLOCK.sub("", page.read_text(encoding="utf-8"))
    found = [first or second for first, second in _LINK.findall(text)]
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them: small letters, spaces to dashes, nothing else that is no letter or digit."""
    headings = _HEADING.findall(_BLOCK.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in _links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file(), f"{page.name}: {link}: there is no such file"
        assert ROOT in target.parents, f"{page.name}: {link}: outside of the project"
        if anchor:
            assert anchor in _anchors(target), f"{page.name}: {link}: there is no such heading"


def test_every_page_can_be_reached() -> None:
    reached: set[Path] = set()
    ahead = [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = [(page.parent / link.partition("#")[0]).resolve() for link in _links(page)]
        ahead += [target for target in targets if target.suffix == ".md"]
    assert set(PAGES) <= reached, f"no link leads to {sorted(map(str, set(PAGES) - reached))}"


def test_the_map_has_every_page_of_its_folder() -> None:
    index = ROOT / "docs" / "index.md"
    listed = {(index.parent / link.partition("#")[0]).resolve() for link in _links(index)}
    assert {page for page in (ROOT / "docs").glob("*.md") if page != index} <= listed
