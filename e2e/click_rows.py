"""Rows of Criteo's click logs, with commas below a header, as its sample is.

They are the real ones where there are some: in the file that ELASTICDL_TEST_CRITEO names, or in `../shared/data` beside
the checkout (the sample of 200 rows that comes with DeepCTR's examples is one). Elsewhere they are made, as many and of
the same form.
"""

from __future__ import annotations

import os
from pathlib import Path

from e2e.conftest import ROOT
from elasticdl.data.generators.criteo import make_criteo_like

ROWS = 200
_COLUMNS = ["label", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]


def provide(folder: Path) -> Path:
    """A file of them; one that has to be made is made in the folder."""
    named = os.environ.get("ELASTICDL_TEST_CRITEO")
    real = Path(named) if named else ROOT.parent / "shared" / "data" / "criteo_sample.txt"
    if real.is_file():
        return real
    make_criteo_like(folder / "made", rows=ROWS, test_rows=1)
    (made,) = (folder / "made" / "train").glob("*.txt")
    rows = [row.replace("\t", ",") for row in made.read_text().splitlines()]
    path = folder / "criteo_sample.txt"
    path.write_text("\n".join([",".join(_COLUMNS), *rows, ""]))
    return path
