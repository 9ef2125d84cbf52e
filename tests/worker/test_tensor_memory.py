"""A worker keeps the memory of arrays that it makes and drops all the time."""

from __future__ import annotations

import subprocess
import sys

from elasticdl.worker.tensor_memory import keep_memory

# The pages that the system had to hand out for ten arrays of 16 MB, made and dropped one after the other.
_PROGRAM = """
import resource, sys
from elasticdl.worker.tensor_memory import keep_memory
if sys.argv[1] == "kept":
    assert keep_memory({})
size = 16 << 20
for _ in range(2):
    bytes(b"x" * size)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    b"x" * size, b"y" * (2 * size - 4096)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def _pages(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, how], check=True, capture_output=True, text=True)
    return int(done.stdout)


def test_memory_is_asked_for_once() -> None:
    assert _pages("kept") < _pages("given back") / 5


def test_allocator_settings_of_user_are_kept() -> None:
    assert not keep_memory({"MALLOC_TRIM_THRESHOLD_": "100000"})
    assert not keep_memory({"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=100000"})
