"""How the Estimator programs of this zoo read their data: in shards that the master of the job hands out.

`ShardIndices` turns shards into sample indices for `tf.data`, and remembers which samples were read but not trained
yet. TensorFlow needs that: when a parameter server dies, the session of a worker is made anew and so is its input,
which begins where nobody has trained, and not behind what was only read ahead. `ElasticDataShardReportHook` tells
after each step that a batch is done.

Both use nothing of `elasticai_api` but `fetch_shard` and `report_batch_done`, so they work with the public package of
that name as well.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import tensorflow as tf


class ShardIndices:
    """The samples of this process, in the order in which they were handed out to it."""

    def __init__(self, shard_service: Any, batch_size: int) -> None:
        self._service = shard_service
        self._batch_size = batch_size
        # Handed out and not trained; the head of it is trained next.
        self._held: deque[int] = deque()
        # Of these, what has not been read yet.
        self._ahead: deque[int] = deque()
        self._readers = itertools.count(1)
        self._reader = 0
        self._reading = threading.Lock()

    def __iter__(self) -> Iterator[int]:
        """A new reader: it begins with what is held, and ends the one before it."""
        with self._reading:
            reader = self._reader = next(self._readers)
            self._ahead = deque(self._held)
        while True:
            with self._reading:
                if reader != self._reader:
                    return
                if not self._ahead:
                    shard = self._service.fetch_shard()
                    if not shard:
                        return
                    self._held.extend(range(shard.start, shard.end))
                    self._ahead.extend(range(shard.start, shard.end))
                index = self._ahead.popleft()
            yield index

    def batch_done(self) -> None:
        self._service.report_batch_done()
        # The last batch of all may be smaller.
        for _ in range(min(self._batch_size, len(self._held))):
            self._held.popleft()


class ElasticDataShardReportHook(tf.estimator.SessionRunHook):
    """Tells after each step of training that a batch is done."""

    def __init__(self, indices: ShardIndices) -> None:
        self._indices = indices

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._indices.batch_done()
