"""Session hooks for TensorFlow's Estimators and monitored sessions: batches are reported without a line in the loop."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from elasticai_api.common.shards import DataShardService

# The global step is for people to look at, and on parameter servers it has to be fetched.
_STEP_SECONDS = 1.0


class ElasticDataShardReportHook(tf.compat.v1.train.SessionRunHook):  # type: ignore[misc]
    """Reports a batch after every step of the session, and the global step now and then.

    The samples of a step are one batch of the service, in the order in which they were fetched: shuffling is for the
    service to do, not for a buffer in the input pipeline.
    """

    def __init__(self, data_shard_service: DataShardService) -> None:
        self._service = data_shard_service
        self._global_step: Any = None
        self._asked_at = 0.0

    def begin(self) -> None:
        self._global_step = tf.compat.v1.train.get_global_step()

    def before_run(self, run_context: Any) -> Any:
        now = time.monotonic()
        if self._global_step is None or now < self._asked_at + _STEP_SECONDS:
            return None
        self._asked_at = now
        return tf.compat.v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        self._service.report_batch_done()
        if run_values.results is not None:
            self._service.report_global_step(int(run_values.results))

    def end(self, session: Any) -> None:
        if self._global_step is not None:
            self._service.report_global_step(int(session.run(self._global_step)))
        self._service.flush()
