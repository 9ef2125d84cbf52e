"""A slow program, one batch in a while, until the batch server has no limits any more. Then it runs at full speed.

Unlike a held worker it ends its shard when it is drained, so that jobs can be resized while they wait.
"""

import os
import time

from gate import BATCH_SERVER, is_limited

from elasticai_api.common.data_shard_service import DataShardService

BATCH, SAMPLES = 10, 20_000
_SECONDS = float(os.environ.get("ELASTICDL_TEST_BATCH_SECONDS", "0.5"))

print("batch server", BATCH_SERVER, flush=True)
shards = DataShardService(
    batch_size=BATCH, num_epochs=1, dataset_size=SAMPLES, num_minibatches_per_shard=2, dataset_name="samples"
)
slow = True
while shard := shards.fetch_shard():
    for _ in range(shard.start, shard.end, BATCH):
        slow = slow and is_limited()
        if slow:
            time.sleep(_SECONDS)
        shards.report_batch_done(BATCH)
