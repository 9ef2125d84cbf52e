"""A program with a loop of its own that fetches shards and reports them, one a call, as fast as the master lets it.

`python program_client.py SIZE BATCH SECONDS`, as a file: for our `elasticai_api` and for the public package alike,
whichever is found first. The environment is that of a worker. One batch is a shard. It works a while, so that it is
under way, writes "ready" and waits for a line; then it works for so many seconds, waits until the master knows of all
it did, and writes that as JSON.
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
