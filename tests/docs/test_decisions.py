"""Decision records have one form, an entry in the index, and references to files that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
SECTIONS = ["Context", "Decision", "Alternatives", "Consequences"]
_FILE = re.compile(r"`((?:benchmarks|build_backend|e2e|elasticai_api|elasticdl|native|tools)/[\w/.]+)`")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_record_has_form(record: Path) -> None:
    text = record.read_text(encoding="utf-8")
    number = record.name[:4]
    title, blank, status = text.splitlines()[:3]
    assert title.startswith(f"# {number} ")
    assert blank == ""
    assert re.match(r"Status: (accepted|superseded by \[\d{4}\])", status)
    assert re.findall(r"^#+ (.+)$", text, re.MULTILINE)[1:] == SECTIONS
    assert all(section.strip() for section in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:])


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name)
def test_files_named_by_record_exist(record: Path) -> None:
    missing = [
        path for path in _FILE.findall(record.read_text(encoding="utf-8")) if not (ROOT / path).exists()
    ]
    assert missing == []


def test_index_lists_each_record_once_in_order() -> None:
    rows = re.findall(
        r"^\| \[(\d{4})\]\((\S+)\) \| .+ \|$",
        (FOLDER / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert [name for _, name in rows] == [record.name for record in RECORDS]
    assert all(name.startswith(f"{number}-") for number, name in rows)
