"""The server path alone, with one of our servers: the distinct ids of a batch, their rows, as many gradients.

It does what our workers do besides computing: one thread pulls the rows of the next batch while another one pushes the
gradients of the last.
"""

from __future__ import annotations

import argparse
import queue
import threading
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.our_server import TABLE, connect
from benchmarks.parameter_servers.progress import Progress
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.unique_ids import unique


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--address", required=True)
    parser.add_argument("--number", type=int, default=0)
    arguments = parser.parse_args()
    number = arguments.number
    data = clicks.open_clicks(arguments.data)
    client = connect(arguments.address, worker=f"worker-{number}", rule="sgd")
    gradients = np.full((data.sizes.batch * clicks.CATEGORIES, clicks.WIDTH), 1e-6, np.float32)
    pulled: queue.Queue[Any] = queue.Queue(maxsize=1)

    def pull() -> None:
        for _, ids, _ in data.batches(number * data.sizes.batches // 2):
            different, _ = unique(ids.reshape(-1))
            pulled.put((different, client.pull_rows({TABLE.name: different})[TABLE.name]))

    threading.Thread(target=pull, daemon=True).start()
    progress = Progress(f"worker-{number}")
    while True:
        different, rows = pulled.get()
        given = {TABLE.name: RowGradients(ids=different, values=gradients[: len(different)])}
        client.push({}, rows=given, learning_rate=clicks.PLAIN_RATE)
        progress.batch(float(rows[0, 0]))


if __name__ == "__main__":
    main()
