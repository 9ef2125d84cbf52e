"""A program with its own loop that fetches and reports shards, one per call, as fast as the master allows.

`python program_client.py SIZE BATCH SECONDS`, run as a file: with our `elasticai_api` or with the public package,
whichever is first on the path. The environment is that of a worker. One batch is a shard. After a warm-up it writes
"ready" and waits for a line; then it works for SECONDS, waits until the master has all its reports, and writes the
counts as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

from elasticai_api.common.data_shard_service import build_data_shard_service

_WARM_UP_SECONDS = 2.0


def main(size: str, batch: str, seconds: str) -> None:
    service = build_data_shard_service(
        batch_size=int(batch),
        num_epochs=1,
        dataset_size=int(size),
        shuffle_shards=True,
        num_minibatches_per_shard=1,
        dataset_name="training",
    )

    def work(seconds: float) -> list[float]:
        took: list[float] = []
        begin = now = time.perf_counter()
        while now - begin < seconds:
            if service.fetch_shard() is None:
                raise RuntimeError("the data set is used up; it must outlast the measurement")
            service.report_batch_done(int(batch))
            before, now = now, time.perf_counter()
            took.append(now - before)
        return took

    work(_WARM_UP_SECONDS)
    print("ready", flush=True)
    sys.stdin.readline()
    begin = time.perf_counter()
    took = work(float(seconds))
    # The public package has reported everything by now.
    getattr(service, "flush", lambda: None)()
    spent = time.perf_counter() - begin
    print(json.dumps({"shards": len(took), "seconds": spent, "p50": statistics.median(took)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
