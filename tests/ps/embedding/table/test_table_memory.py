"""A row costs its values and slots and at most 24 bytes more, and memory that is no longer used comes back.

Measured from outside: the resident memory of a process that does nothing else.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

MEASURE = """
import sys, gc
import numpy as np
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.embedding.table import Table, TableSpec
from elasticdl.wire import ps_pb2

def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def make(name, width, expire_after):
    spec = TableSpec(name="t", width=width, expire_after=expire_after)
    return Table(spec, optimizers[name], buckets=BUCKETS)

optimizers = {
    name: make_optimizer(ps_pb2.OptimizerConfig(name=name, flavor="keras")) for name in ("sgd", "adam")
}
"""
PER_ROW = """
name, width, slots, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
needed = 4 * width * (1 + slots)
table = make(name, width, 100)
held = worst = 0.0
for start in range(0, rows, rows // 50):
    table.gather(np.arange(start, start + rows // 50, dtype=np.int64) * 7919, step=1)
    if start == rows // 10:
        # What a table costs without rows does not count.
        held, few = resident(), len(table)
    if start > rows // 2:
        worst = max(worst, table.budget.used / len(table) - needed)
# Of a huge page of which only a part is used the system makes a whole one, or does not: that is no row's.
grown = resident() - held - (2 << 20)
print(max(worst, grown / (len(table) - few) - needed))
"""
LEAK = """
gradients = np.ones((5000, 8), np.float32)
ids = np.arange(5000, dtype=np.int64)

def work():
    table = make("adam", 8, 5)
    for step in range(1, 6):
        table.gather(ids + 5000 * step, step=step)
        table.update(ids, gradients, learning_rate=0.1, step=step)
    table.expire(9)
    other = make("adam", 8, 5)
    for bucket in range(BUCKETS):
        other.put(table.export(bucket))
        table.delete(bucket)

for _ in range(10):
    work()
before = resident()
for _ in range(60):
    work()
print(resident() - before)
"""


def run(script: str, *arguments: object) -> float:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE + script, *map(str, arguments)],
        check=True,
        capture_output=True,
        text=True,
        timeout=250,
    )
    return float(done.stdout)


# The optimizer that counts steps and a table whose rows expire: a row has nothing that it could do without. Where there
# are eight million, the buckets' indexes are large enough to lie in huge pages together.
@pytest.mark.parametrize(
    ("name", "width", "slots", "rows"),
    [("adam", 16, 2, 1_000_000), ("sgd", 8, 0, 1_000_000), ("sgd", 8, 0, 8_000_000)],
)
def test_bytes_of_a_row(name: str, width: int, slots: int, rows: int) -> None:
    assert run(PER_ROW, name, width, slots, rows) <= 24


def test_nothing_leaks() -> None:
    # Each round has tables of 6 MB.
    assert run(LEAK) < 3_000_000
