"""An update that fails in the middle, by no fault of the user's: the server ends, and serves nothing half updated."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import numpy as np
from elasticdl.ps.holdings import Push
from elasticdl.ps.dense import DenseParameters
from elasticdl.ps.store import Initial, ServerSettings, Store
from elasticdl.wire import ps_pb2

store = Store(ServerSettings())
store.close(1)
store.open()
values = {"x": np.ones(2, np.float32)}
optimizer = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
store.initialize(Initial(trainable=values, state={}, optimizer=optimizer), generation=1)

def out_of_memory(*args, **kwargs):
    raise MemoryError

DenseParameters.apply = out_of_memory
try:
    store.push(Push(worker="w", sequence=1, version=0, generation=1, learning_rate=0.1, gradients=values))
finally:
    print("goes on")
"""


def test_no_memory_for_it() -> None:
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stderr
    assert "goes on" not in ended.stdout
    assert "An update has failed in the middle." in ended.stderr
    assert "MemoryError" in ended.stderr
