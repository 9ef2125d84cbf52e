"""A server may have as many connections open as the system lets it."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import resource
from elasticdl.ps.__main__ import allow_connections

for now, most in ((300, 4096), (200, 4096), (4096, 4096)):
    resource.setrlimit(resource.RLIMIT_NOFILE, (now, most))
    allow_connections()
    print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def test_server_raises_open_file_limit_to_hard_limit() -> None:
    describe_error = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True
    )
    assert describe_error.stdout.split() == ["4096"] * 6
