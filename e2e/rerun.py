"""`python -m e2e.rerun ARGUMENTS`: runs pytest, then reruns each failed test alone, up to a few.

Many tests start processes, on a machine with an unknown load. A test that fails, and then passes alone, does not block
a change: `.ci/run` runs all tests in this way. It is still a defect: the test depends on the speed of the machine or
the system has a race. So every rerun is listed at the end with its outcome, and appended to the file that
ELASTICDL_RERUN_LOG names. The output of the first failure is above. More failures than a few have a common cause and
are not rerun.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RERUN_LIMIT = 3
_TESTS_FAILED = 1


class FailedTests:
    """A pytest plugin: collects the ids of failed tests, of all xdist processes."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.ids:
            self.ids.append(report.nodeid)


def main(arguments: list[str], *, root: Path = ROOT) -> int:
    failed = FailedTests()
    code = int(pytest.main(arguments, plugins=[failed]))
    if code != _TESTS_FAILED or not 0 < len(failed.ids) <= RERUN_LIMIT:
        return code
    codes = {test: _rerun(test, root) for test in failed.ids}
    lines = [rerun_line(test, code) for test, code in codes.items()]
    print("\n=== rerun after a failure, see above for the first one ===", *lines, sep="\n", flush=True)
    if log := os.environ.get("ELASTICDL_RERUN_LOG"):
        with Path(log).open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)
    return max(codes.values())


def rerun_line(test: str, code: int) -> str:
    return f"{'PASSED' if code == 0 else 'FAILED AGAIN'} when rerun alone: {test}"


def _rerun(test: str, root: Path) -> int:
    print(f"\nRerunning {test}", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", test], cwd=root, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
