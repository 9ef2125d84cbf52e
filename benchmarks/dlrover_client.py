"""The same as `shard_client`, for DLRover's master and with DLRover's own client, which fetches one shard per call.

Run as a file by the interpreter of DLRover's environment: `python dlrover_client.py ADDRESS NODE SHARDS SECONDS`.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

from dlrover.python.elastic_agent.master_client import GrpcMasterClient  # type: ignore[import-not-found, unused-ignore]

_DATASET = "training"


def main(address: str, node: str, shards: str, seconds: str) -> None:
    # Its master replies to the first call only after it has created a list of all shards.
    client = GrpcMasterClient(address, int(node), "worker", timeout=60)
    deadline = float(seconds)
    client.report_dataset_shard_params(
        batch_size=64,
        num_epochs=1,
        dataset_size=64 * int(shards),
        shuffle=True,
        num_minibatches_per_shard=1,
        dataset_name=_DATASET,
        storage_type="table",
    )
    _one(client)
    print("ready", flush=True)
    sys.stdin.readline()
    done = 0
    took = []
    begin = now = time.perf_counter()
    while now - begin < deadline:
        _one(client)
        done += 1
        before, now = now, time.perf_counter()
        took.append(now - before)
    print(json.dumps({"shards": done, "seconds": now - begin, "p50": statistics.median(took)}), flush=True)


def _one(client: GrpcMasterClient) -> None:
    answered, task = client.get_task(_DATASET)
    if not answered or task.shard.end <= task.shard.start:
        raise RuntimeError("the data set is used up; it must outlast the measurement")
    client.report_task_result(_DATASET, task.task_id, "")


if __name__ == "__main__":
    main(*sys.argv[1:])
