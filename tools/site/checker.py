"""Checks a built site: every internal link leads to a file and a heading, and nothing is loaded from another server.

    python -m tools.site.checker out/site        # exit code 1 if something is wrong

It reads the HTML, so that it finds what any generator has overlooked.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

# What a browser fetches by itself: element and attribute. Of <link>, only with these relations.
_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
_LOADED_RELATIONS = {
    "stylesheet",
    "icon",
    "preload",
    "modulepreload",
    "preconnect",
    "dns-prefetch",
    "manifest",
}
_SCHEME = re.compile(r"^(?:[a-z][a-z+.-]*:|//)", re.IGNORECASE)
_STYLE_URL = re.compile(r"url\(\s*['\"]?(https?:)?//|@import\s+['\"](https?:)?//")


@dataclass(kw_only=True)
class _Page:
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = _Page()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.page.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.page.links.append(values["href"])
        address = values.get(_LOADED.get(tag, ""), "")
        if address and (tag != "link" or _LOADED_RELATIONS & set(values.get("rel", "").split())):
            self.page.loaded.append(address)


def problems(site: Path) -> Iterator[str]:
    """Yields a sentence for each thing that is wrong."""
    pages = {path.resolve(): _read(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        yield f"{site} has no pages."
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        for address in page.loaded:
            if _SCHEME.match(address) and not address.startswith("data:"):
                yield f"{name}: loads {address} from another server."
        # The page for unknown addresses is shown at any of them, so its links begin at the root of the server.
        if name.name == "404.html":
            continue
        for address in (*page.links, *page.loaded):
            if not _SCHEME.match(address) and (problem := _broken(path, address, pages)):
                yield f"{name}: {address}: {problem}."
    for path in sorted(site.rglob("*.css")):
        if _STYLE_URL.search(path.read_text(encoding="utf-8", errors="replace")):
            yield f"{path.relative_to(site)}: loads something from another server."


def _broken(path: Path, address: str, pages: dict[Path, _Page]) -> str:
    place, _, anchor = address.partition("#")
    place = unquote(place.partition("?")[0])
    target = (path.parent / place).resolve() if place else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "there is no such file"
    if anchor and target in pages and unquote(anchor) not in pages[target].ids:
        return "there is no such heading"
    return ""


def _read(path: Path) -> _Page:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.page


def main() -> None:
    found = list(problems(Path(sys.argv[1])))
    for sentence in found:
        print(sentence, file=sys.stderr)
    if found:
        raise SystemExit(1)
    print(f"{sys.argv[1]}: links are whole, nothing is loaded from other servers.")


if __name__ == "__main__":
    main()
