"""A worker that only leases shards and reports them done, as fast as the master allows.

`python -m benchmarks.shard_client ADDRESS TOKEN_FILE NODE SIZE SHARDS_A_CALL SECONDS` joins, announces a data set of
SIZE samples, writes "ready" and waits for a line; then it works for SECONDS and writes its counts as JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
import uuid

from elasticdl.wire import master_pb2 as pb
from elasticdl.wire.channel import open_channel, read_token
from elasticdl.wire.master_pb2_grpc import MasterStub


class ShardClient:
    def __init__(self, *, address: str, token_file: str, node: str, size: int) -> None:
        self._channel = open_channel(address, read_token(token_file))
        self._stub = MasterStub(self._channel)  # type: ignore[no-untyped-call]
        self._node = node
        self._number = 0
        join = pb.JoinRequest(node=node, role="worker", incarnation=uuid.uuid4().hex)
        self._stub.Join(join, wait_for_ready=True)
        self._stub.Announce(pb.AnnounceRequest(node=node, dataset="training", size=size))

    def lease(self, count: int) -> list[pb.Shard]:
        self._number += 1
        request = pb.LeaseRequest(
            node=self._node,
            dataset="training",
            max_shards=count,
            request_id=self._number,
            generation=1,
            wait=True,
        )
        return list(self._stub.Lease(request).shards)

    def report(self, shards: list[pb.Shard]) -> None:
        """Reports each shard separately: one may be done, another half done, a third lost."""
        progress = [pb.Progress(lease_id=s.lease_id, position=s.end, batches=1) for s in shards]
        reply = self._stub.Report(
            pb.ReportRequest(node=self._node, generation=1, progress=progress, report_id=self._number)
        )
        if reply.lost_leases:
            raise RuntimeError(f"{self._node} has lost {reply.lost_leases}")

    def close(self) -> None:
        self._channel.close()


def main(address: str, token_file: str, node: str, size: str, count: str, seconds: str) -> None:
    client = ShardClient(address=address, token_file=token_file, node=node, size=int(size))
    at_once, deadline = int(count), float(seconds)
    client.report(client.lease(at_once))
    print("ready", flush=True)
    sys.stdin.readline()
    done = 0
    took: list[float] = []
    begin = now = time.perf_counter()
    while now - begin < deadline:
        shards = client.lease(at_once)
        client.report(shards)
        done += len(shards)
        before, now = now, time.perf_counter()
        took.append(now - before)
        if not shards:
            raise RuntimeError("the data set is used up; it must outlast the measurement")
    print(json.dumps({"shards": done, "seconds": now - begin, "p50": statistics.median(took)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
