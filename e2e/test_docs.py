"""The documentation, followed line by line, as far as one machine is enough for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.conftest import ROOT
from e2e.pages import PAGES, follow


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_page_work(page: Path, tmp_path: Path) -> None:
    follow(page, tmp_path, seconds=580)
