"""`python -m benchmarks.performance`: writes the tables and plots of docs/performance.md from the newest results.

The exit code is 1, and nothing is changed, if the results do not support a claim of the page.
"""

from __future__ import annotations

import sys

from benchmarks.performance.page import Unsupported, build
from benchmarks.performance.run_log import newest
from benchmarks.processes import ROOT

RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
IMAGES = ROOT / "docs" / "images"


def main() -> int:
    try:
        text, plots = build(PAGE.read_text(), newest(RESULTS))
    except Unsupported as unsupported:
        print(unsupported, file=sys.stderr)
        return 1
    PAGE.write_text(text)
    for name, plot in plots.items():
        (IMAGES / name).write_text(plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
