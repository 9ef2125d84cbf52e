"""A program for Paddle's fleet, as in the Kubernetes guide: DeepFM on synthetic clicks, a fixed number of batches.

The same program runs under `elasticdl paddle run` and by hand; the PADDLE_* variables select its role.
"""

from __future__ import annotations

import os

import numpy as np

from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.progress import Progress

BATCHES = "ELASTICDL_BENCHMARK_BATCHES"
BATCH = 512
_IDS = 100_000


def main() -> None:
    # Imported here, because the benchmark imports the constants of this module without Paddle.
    import paddle
    from paddle.distributed import fleet

    from benchmarks.parameter_servers.paddle_program import network

    paddle.enable_static()
    fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
    _, loss = network(clicks.LAYERS["light"], _IDS)
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    fleet.distributed_optimizer(paddle.optimizer.Adam(clicks.RATE), strategy).minimize(loss)
    if fleet.is_server():
        fleet.init_server()
        fleet.run_server()
        return
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    number = int(os.environ["PADDLE_TRAINER_ID"])
    progress = Progress(f"worker-{number}")
    random = np.random.default_rng(number)
    for _ in range(int(os.environ[BATCHES])):
        feed = {
            "numbers": random.standard_normal((BATCH, clicks.NUMBERS), dtype=np.float32),
            "ids": random.integers(0, _IDS, (BATCH * clicks.CATEGORIES, 1)),
            "labels": random.integers(0, 2, (BATCH, 1)).astype(np.float32),
        }
        (found,) = executor.run(paddle.static.default_main_program(), feed=feed, fetch_list=[loss])
        progress.batch(float(found))
    fleet.stop_worker()
