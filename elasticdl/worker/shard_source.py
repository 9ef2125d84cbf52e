"""The shards of one data set as a worker gets them: an iterator that asks the master for the next.

It is read by the thread that reads data ahead, so a shard is leased while the one before is being computed
with.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

import grpc

from elasticdl.wire import master_pb2 as pb
from elasticdl.worker.master_link import MasterLink
from elasticdl.worker.trainer import Shard


class LeasedShards:
    """Iterates until the data set is finished, the generation is over, or `close` is called."""

    # Request numbers grow over all streams of a process: the master takes a lower one for a repeated call.
    _numbers = itertools.count(1)

    def __init__(self, link: MasterLink, dataset: str, *, generation: int, wait: bool = True) -> None:
        self._link = link
        self._dataset = dataset
        self._generation = generation
        self._wait = wait
        # An evaluation is restarted by a master that has forgotten it.
        self._remembered = dataset != "evaluation"
        self._closed = threading.Event()
        self.finished = False

    def close(self) -> None:
        self._closed.set()

    def __iter__(self) -> Iterator[Shard]:
        while not self._closed.is_set():
            request = pb.LeaseRequest(
                node=self._link.node,
                dataset=self._dataset,
                max_shards=1,
                request_id=next(self._numbers),
                generation=self._generation,
                wait=self._wait,
            )
            try:
                reply = self._link.call(self._link.stub.Lease, request)
            except grpc.RpcError:
                if self._closed.is_set():
                    return
                raise
            shards = [
                Shard(lease_id=s.lease_id, epoch=s.epoch, start=s.start, end=s.end, applied=s.applied_buckets)
                for s in reply.shards
            ]
            for shard in shards:
                if self._remembered:
                    self._link.memory.shards.add(
                        shard.lease_id,
                        dataset=self._dataset,
                        epoch=shard.epoch,
                        start=shard.start,
                        end=shard.end,
                        applied=shard.applied,
                    )
            yield from shards
            if reply.finished:
                self.finished = True
                return
            if not reply.shards and not self._wait:
                return
            if self._link.directive().generation != self._generation:
                return
