"""Keras: batches of `model.fit` are reported by a callback."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf

from elasticai_api.common.shards import DataShardService

_STEP_SECONDS = 1.0


class ElasticDataShardReportCallback(tf.keras.callbacks.Callback):  # type: ignore[misc]
    """Reports the batches of `model.fit`, and now and then the step and the loss.

    With `steps_per_execution` Keras tells of several batches at once; each of them is reported.
    """

    def __init__(self, data_shard_service: DataShardService) -> None:
        super().__init__()
        self._service = data_shard_service
        self._reported = 0
        self._reported_at = 0.0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        # Keras counts batches from 0 in every epoch.
        self._reported = 0

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        while self._reported <= batch:
            self._reported += 1
            self._service.report_batch_done()
        now = time.monotonic()
        if now >= self._reported_at + _STEP_SECONDS:
            self._reported_at = now
            self._tell(logs)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._tell(logs)
        self._service.flush()

    def _tell(self, logs: dict[str, Any] | None) -> None:
        loss = (logs or {}).get("loss")
        step = int(self.model.optimizer.iterations)
        self._service.report_global_step(step, None if loss is None else float(loss))
