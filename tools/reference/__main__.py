"""`python -m tools.reference`: writes the pages of docs/reference. `make reference` runs it, a test compares."""

from __future__ import annotations

from pathlib import Path

from tools.reference.pages import PAGES

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"


def main() -> None:
    for name, write in PAGES.items():
        (FOLDER / name).write_text(write(), encoding="utf-8")
        print(f"docs/reference/{name}")


if __name__ == "__main__":
    main()
