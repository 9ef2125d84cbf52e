"""The worker's memory for a master that has lost its journal: its leases, and facts from directives.

The leases are in a `ShardMemory`. Beside them are the sizes of the data sets, the generation that the leases belong to,
and the leases that the master has since given to another worker.
"""

from __future__ import annotations

import threading

from elasticai_api.common.shard_memory import ShardMemory
from elasticdl.wire import master_pb2 as pb


class LeaseMemory:
    """Safe to use from several threads."""

    def __init__(self) -> None:
        self.shards = ShardMemory()
        self._lock = threading.Lock()
        self._sizes: dict[str, int] = {}
        self._generation = 0
        # Leases that are not this worker's any more, by the master's word.
        self.lost: set[int] = set()

    def announce(self, dataset: str, size: int) -> None:
        with self._lock:
            self._sizes[dataset] = size

    def start_generation(self, generation: int) -> None:
        """Drops all leases: what was done before belongs to a model that is lost."""
        with self._lock:
            self._generation = generation
            self.shards.clear()
            self.lost.clear()

    def lose(self, leases: list[int]) -> None:
        with self._lock:
            self.lost.update(leases)
            self.shards.drop(leases)

    def report(self, node: str, directive: pb.Directive) -> pb.TellRequest:
        """The report, with the newest directive that this worker had from the previous master."""
        with self._lock:
            return pb.TellRequest(
                node=node,
                generation=self._generation,
                seen_generation=max(self._generation, directive.generation),
                barrier=max(directive.barrier_requested, directive.barrier_passed),
                sizes=self._sizes,
                epochs_ended=directive.epochs_ended,
                shards=[
                    pb.ToldShard(
                        lease_id=shard.shard_id,
                        dataset=shard.dataset,
                        epoch=shard.epoch,
                        start=shard.start,
                        position=shard.position,
                        end=shard.end,
                        batches=shard.batches,
                        atomic=shard.atomic,
                        held=shard.is_held,
                        applied_buckets=shard.applied,
                    )
                    for shard in self.shards.shards()
                ],
            )
