"""A data set of 10¹² samples: the time until the master leases its first shard, and its memory.

The time is from the start of the master's process. The memory is that of the process after 20,000 shards have been
leased and reported, compared with a master whose data set has 10³ samples.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import psutil

from benchmarks.masters import our_master
from benchmarks.report import Result, at_most_more
from benchmarks.shard_client import ShardClient

NAME = "master_memory"
LARGE, SMALL = 10**12, 10**3
SHARD_SIZE = 64
SHARDS = 20_000
SHARDS_A_CALL = 10


def run(*, quick: bool, repeat: int) -> list[Result]:
    large, small = [], []
    for _ in range(repeat):
        large.append(_measure(LARGE, shards=SHARDS // 10 if quick else SHARDS))
        # All but the last one, which would end the epoch.
        small.append(_measure(SMALL, shards=SMALL // SHARD_SIZE))
    first = Result(
        benchmark=NAME,
        case="10¹² samples, first shard",
        unit="s",
        us=statistics.median(seconds for seconds, _ in large),
        note=f"with 10³ samples {statistics.median(seconds for seconds, _ in small):.3g} s",
    )
    memory = Result(
        benchmark=NAME,
        case="10¹² samples, against 10³",
        unit="MB",
        us=statistics.median(megabytes for _, megabytes in large),
        peer=statistics.median(megabytes for _, megabytes in small),
    )
    return [at_most_more(first, 1.0), at_most_more(memory, 100.0)]


def _measure(size: int, *, shards: int) -> tuple[float, float]:
    """Seconds until the first shard, and megabytes after all shards."""
    with (
        tempfile.TemporaryDirectory() as home,
        our_master(Path(home), workers=1, shard_size=SHARD_SIZE) as master,
    ):
        client = ShardClient(
            address=master.address, token_file=str(master.folder / "token"), node="worker-0", size=size
        )
        held = client.lease(1)
        seconds = time.monotonic() - master.started
        client.report(held)
        done = 1
        while done < shards:
            held = client.lease(min(SHARDS_A_CALL, shards - done))
            client.report(held)
            done += len(held)
        megabytes = psutil.Process(master.pid).memory_info().rss / 1e6
        client.close()
    return seconds, megabytes
