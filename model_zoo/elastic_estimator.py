"""The common part of this zoo's Estimator programs: the three things that make an Estimator elastic.

`ShardIndices` turns shards, which the master of the job hands out, into sample indices for `tf.data`, and remembers
which samples were read but not trained yet. When a parameter server dies, TensorFlow recreates the session of a worker
and with it its input, which must begin at the first untrained sample, and not behind what was only prefetched.

`ElasticDataShardReportHook` tells after each step that a batch is done.

`KeepServedModelHook` is for a chief that was killed. A chief begins by restoring the newest checkpoint, which throws
away what the workers have trained since. So what the parameter servers hold is saved first.

They use nothing of `elasticai_api` but `fetch_shard` and `report_batch_done`, and so work with the public package of
that name as well.
"""

from __future__ import annotations

import itertools
import os
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
        # The indices that have not been read yet.
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


class KeepServedModelHook(tf.estimator.SessionRunHook):
    """Saves, in a chief, the model that the parameter servers hold before it restores a checkpoint."""

    def __init__(self, config: tf.estimator.RunConfig) -> None:
        self._config = config

    def begin(self) -> None:
        if not self._config.is_chief or not self._config.num_ps_replicas:
            return
        missing = tf.compat.v1.report_uninitialized_variables(tf.compat.v1.global_variables())
        saver = tf.compat.v1.train.Saver(save_relative_paths=True)
        step = tf.compat.v1.train.get_global_step()
        with tf.compat.v1.Session(self._config.master, config=self._config.session_config) as session:
            if session.run(missing).size == 0:
                saver.save(session, os.path.join(self._config.model_dir, "model.ckpt"), global_step=step)
                tf.compat.v1.logging.info("The servers have a model, of step %d: saved.", session.run(step))
