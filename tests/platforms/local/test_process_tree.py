"""A process that asks to die with its parent also dies if the parent was killed before it could ask."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import os
from elasticdl.platforms.local.process_tree import die_with_parent

parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        pass
    die_with_parent(parent)
    print("still runs", flush=True)
"""


def test_child_of_a_parent_that_has_died_is_killed() -> None:
    # Ends when the output has been closed by the child, too.
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == ""
