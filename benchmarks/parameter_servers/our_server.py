"""One of our parameter servers without a job: for the server path alone, for saving and for restoring.

It is the process of every job's server, without a master; this module gives it the master's directives: one server,
generation 1. With `--rows` it starts with so many rows, with `--restore` with those of a checkpoint file; with `--make`
it writes such a file and exits.
"""

from __future__ import annotations

import argparse
import os
import threading
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.parameter_servers import clicks
from elasticdl.ps.checkpoint.resharding import read_share
from elasticdl.ps.checkpoint.table_files import SavedTables
from elasticdl.ps.client.parameter_client import ParameterClient
from elasticdl.ps.core.buckets import BUCKETS, first_map
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TableSpec
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import ServerSettings
from elasticdl.wire import ps_pb2

TOKEN = "a token for a benchmark"
TABLE = TableSpec(name="table", width=clicks.WIDTH)
_AT_ONCE = 100_000


def optimizer(name: str) -> ps_pb2.OptimizerConfig:
    return ps_pb2.OptimizerConfig(name=name, flavor="keras")


def connect(address: str, *, worker: str, rule: str) -> ParameterClient:
    """Returns a client that has initialized the model: a table, and one number."""
    client = ParameterClient([address], TOKEN, worker, generation=1)
    client.initialize({"none": np.zeros(1, np.float32)}, {}, optimizer(rule), [TABLE])
    return client


def push_rows(client: ParameterClient, ids: NDArray[np.int64]) -> None:
    """Pushes one gradient for each row."""
    gradients = np.full((_AT_ONCE, clicks.WIDTH), 1e-3, np.float32)
    for start in range(0, len(ids), _AT_ONCE):
        part = ids[start : start + _AT_ONCE]
        rows = {TABLE.name: RowGradients(ids=part, values=gradients[: len(part)])}
        client.push({}, rows=rows, learning_rate=0.01)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", type=Path, help="the file that its address is written to when it serves")
    parser.add_argument("--restore", type=Path)
    parser.add_argument("--make", type=Path)
    parser.add_argument("--rows", type=int, default=0)
    arguments = parser.parse_args()
    server = ParameterServer(token=TOKEN)
    store = Store(ServerSettings())
    server.serve(store)
    store.close(1)
    store.peers.update_routes(Routes(map=first_map(1, replicas=1)))
    if arguments.restore:
        files = [arguments.restore]
        snapshot, buckets = read_share(files, range(BUCKETS))
        store.open(snapshot, buckets=buckets, tables=SavedTables([files]))
    else:
        store.open()
    if arguments.rows:
        client = connect(server.address, worker="worker-0", rule="adagrad")
        push_rows(client, np.arange(arguments.rows, dtype=np.int64))
        client.close()
    if arguments.make:
        store.master.freeze("all", generation=1)
        store.master.save("all", arguments.make)
        # Exits without closing connections or freeing gigabytes.
        os._exit(0)
    written = arguments.address.with_suffix(".new")
    written.write_text(server.address)
    written.rename(arguments.address)
    threading.Event().wait()


if __name__ == "__main__":
    main()
