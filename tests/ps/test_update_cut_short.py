"""An update that fails in the middle, by no fault of the user's: the server ends, and serves nothing half updated."""

from __future__ import annotations

import subprocess
import sys

import pytest

from elasticdl.platforms.platform import EXIT_OUT_OF_MEMORY

_PROGRAM = """
import numpy as np
from elasticdl.ps.holdings import Push
from elasticdl.ps.dense import DenseParameters
from elasticdl.ps.store import Initial, ServerSettings, Store
from elasticdl.wire import ps_pb2

store = Store(ServerSettings())
store.close(1)
store.open()
values = dict(x=np.ones(2, np.float32))
optimizer = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
store.initialize(Initial(trainable=values, state=dict(), optimizer=optimizer), generation=1)

def fail(*args, **kwargs):
    raise {error}

DenseParameters.apply = fail
try:
    store.push(Push(worker="w", sequence=1, version=0, generation=1, learning_rate=0.1, gradients=values))
finally:
    print("goes on")
"""


@pytest.mark.parametrize(("error", "code"), [("MemoryError", EXIT_OUT_OF_MEMORY), ("ZeroDivisionError", 1)])
def test_nothing_goes_on(error: str, code: int) -> None:
    """The master is told which it was: one that had no memory may get more of it."""
    program = _PROGRAM.format(error=error)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    assert "goes on" not in ended.stdout
    assert "An update has failed in the middle." in ended.stderr
    assert error in ended.stderr
