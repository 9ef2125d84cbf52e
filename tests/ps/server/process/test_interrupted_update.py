"""An update that fails in the middle, by no fault of the user's: the server ends, and serves nothing half updated."""

from __future__ import annotations

import subprocess
import sys

import pytest

from elasticdl.platforms.platform import EXIT_OUT_OF_MEMORY

_PROGRAM = """
import numpy as np
from elasticdl.ps.storage.bucket_store import Push
from elasticdl.ps.storage.dense_parameters import DenseParameters
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.wire import ps_pb2

store = Store(ServerSettings())
store.close(1)
store.open()
values = dict(x=np.ones(2, np.float32))
optimizer = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
store.workers.initialize(InitialModel(trainable=values, state=dict(), optimizer=optimizer), generation=1)

def fail(*args, **kwargs):
    raise {error}

DenseParameters.apply = fail
try:
    store.workers.push(Push(worker="w", sequence=1, version=0, generation=1, learning_rate=0.1, gradients=values))
finally:
    print("goes on")
"""


@pytest.mark.parametrize(("error", "code"), [("MemoryError", EXIT_OUT_OF_MEMORY), ("ZeroDivisionError", 1)])
def test_nothing_goes_on(error: str, code: int) -> None:
    """The master learns which it was: one that had no memory may get more of it."""
    program = _PROGRAM.format(error=error)
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == code, ended.stderr
    assert "goes on" not in ended.stdout
    assert "an update failed half way" in ended.stderr
    assert error in ended.stderr


_TABLE = """
import functools
import sys
import numpy as np
from elasticdl.ps.storage import table_set as tables
from elasticdl.ps.storage.bucket_store import Push
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.ps.embedding.table import Budget, Table, TableSpec
from elasticdl.wire import ps_pb2

# As if the system gave no more.
tables.Table = functools.partial(Table, budget=Budget(300_000))
store = Store(ServerSettings(asynchronous=sys.argv[1] == "asynchronous"))
store.close(1)
store.open()
optimizer = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
spec = TableSpec(name="t", width=16)
store.workers.initialize(InitialModel(trainable={}, state={}, optimizer=optimizer, tables=[spec]), generation=1)
for sequence, rows in enumerate((10, 100_000), start=1):
    part = tables.RowPart(ids=np.arange(rows), values=np.ones((rows, 16), np.float32))
    push = Push(
        worker="w",
        sequence=sequence,
        version=sequence - 1,
        generation=1,
        learning_rate=0.1,
        gradients={},
        rows={"t": part},
    )
    print("goes on", store.workers.push(push), flush=True)
"""


@pytest.mark.parametrize("mode", ["asynchronous", "synchronous"])
def test_no_memory_for_new_rows(mode: str) -> None:
    ended = subprocess.run([sys.executable, "-c", _TABLE, mode], capture_output=True, text=True, check=False)
    assert ended.returncode == EXIT_OUT_OF_MEMORY, ended.stderr
    assert ended.stdout.count("goes on") == 1
    assert "an update failed half way" in ended.stderr
    assert "new rows of the table t" in ended.stderr


_BACKUP = """
import threading
import numpy as np
from elasticdl.ps.core.buckets import BUCKETS, NO_SERVER, BucketMap
from elasticdl.ps.storage.bucket_store import BucketStore
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.wire import ps_pb2

def fail(*args, **kwargs):
    raise {error}

BucketStore.put = fail
alone = BucketMap(version=1, primary=(0,) * BUCKETS, backup=(NO_SERVER,) * BUCKETS)
migrating = BucketMap(version=2, primary=alone.primary, backup=alone.backup, migrating=dict([(0, 1)]))
stores, addresses = [], dict()
for number in range(2):
    store = Store(ServerSettings(), number=number)
    store.close(1)
    store.peers.update_routes(Routes(map=alone))
    store.open()
    server = ParameterServer(token="a token for tests")
    server.serve(store)
    stores.append(store)
    addresses[number] = server.address
optimizer = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
initial = InitialModel(trainable=dict(x=np.ones(2, np.float32)), state=dict(), optimizer=optimizer)
stores[0].workers.initialize(initial, generation=1)
for store in stores:
    store.peers.update_routes(Routes(map=migrating, addresses=addresses))
threading.Event().wait()
"""


@pytest.mark.parametrize(("error", "code"), [("MemoryError", EXIT_OUT_OF_MEMORY), ("ZeroDivisionError", 1)])
def test_a_copy_that_cannot_follow(error: str, code: int) -> None:
    program = _BACKUP.format(error=error)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.returncode == code, ended.stderr
    assert "Exiting: cannot apply an entry of server 0" in ended.stderr
