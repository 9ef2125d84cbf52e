"""The page of all flags is what the definitions say."""

from __future__ import annotations

from pathlib import Path

from elasticdl.cli.reference import page
from elasticdl.jobs.schema.flag_index import NAMES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "flags.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run `python -m elasticdl.cli.reference > docs/reference/flags.md`"


def test_reference_page_has_every_flag() -> None:
    text = page()
    for name in NAMES:
        assert f"`--{name}`" in text
