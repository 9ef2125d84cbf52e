"""A program of the user's own: goes through its data shard by shard. It reports its end to the batch server."""

from gate import NODE, Gate, ask

import elasticai_api
from elasticai_api.common.data_shard_service import DataShardService

print("package", elasticai_api.__file__, flush=True)
gate = Gate()
shards = DataShardService(batch_size=10, num_epochs=2, dataset_size=1000, num_minibatches_per_shard=4)
while shard := shards.fetch_shard():
    for _ in range(shard.start, shard.end, 10):
        gate.enter()
        shards.report_batch_done(10)
        gate.leave()
ask("PUT", f"ended/{NODE}")
