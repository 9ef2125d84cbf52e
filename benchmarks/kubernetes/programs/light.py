"""A worker that uses almost no processor time: it sleeps instead of training. Time stamps of batches show its pauses.

Without a master (a bare pod) it does the same and sends no calls: its pauses are those of the machine.
"""

import os
import time

SECONDS = float(os.environ["BATCH_SECONDS"])
STAMPED = os.environ.get("STAMPED") == "yes"


def batch() -> None:
    time.sleep(SECONDS)
    if STAMPED:
        print("batch", time.monotonic(), flush=True)


if "MASTER_ADDR" not in os.environ:
    while True:
        batch()

from elasticai_api.common.data_shard_service import DataShardService  # noqa: E402

# Data that never ends, in shards of a usual size.
shards = DataShardService(batch_size=10, num_epochs=1, dataset_size=10**12, num_minibatches_per_shard=8)
while shard := shards.fetch_shard():
    for _start in range(shard.start, shard.end, 10):
        batch()
        shards.report_batch_done(10)
