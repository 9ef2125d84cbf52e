"""`python -m e2e.again ARGUMENTS`: pytest, and once more, one by one, what has failed in it.

Whole jobs are many processes on a machine with unknown other load. A test that fails and then passes by
itself does not keep a change from landing, but it is named at the end, and what it printed stands above: either the
test counts on a speed, or the system has a race. Both are defects to be looked for. More than a few of them are no
accident, and are not run again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_TESTS_FAILED = 1
_FEW = 3


class _Failed:
    """The tests that failed, in whatever process they ran."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.names:
            self.names.append(report.nodeid)


def main(arguments: list[str]) -> int:
    failed = _Failed()
    code = int(pytest.main(arguments, plugins=[failed]))
    if code != _TESTS_FAILED or not 0 < len(failed.names) <= _FEW:
        return code
    print(f"\nOnce more, one by one: {', '.join(failed.names)}", flush=True)
    code = subprocess.run(
        [sys.executable, "-m", "pytest", *failed.names], cwd=Path(__file__).resolve().parents[1], check=False
    ).returncode
    if code == 0:
        print("\nPASSED ONLY WHEN RUN ALONE, see above for how they failed:")
        print("\n".join(f"  {name}" for name in failed.names), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
