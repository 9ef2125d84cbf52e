"""Paddle: batches of `paddle.Model.fit` are reported by a callback."""

from __future__ import annotations

import time
from typing import Any

import paddle

from elasticai_api.common.shards import DataShardService

# The step is for people to look at.
_STEP_SECONDS = 1.0


class ElasticReportCallback(paddle.callbacks.Callback):  # type: ignore[misc]
    """Reports the batches of `paddle.Model.fit`, and now and then the step and the loss.

    Args:
        service: The shards that the batches are of, in the order of fetching.

    Example:
        >>> loader = paddle.io.DataLoader(ElasticIterableDataset(dataset, service), batch_size=32)
        >>> model.fit(loader, epochs=1, callbacks=[ElasticReportCallback(service)])
    """

    def __init__(self, service: DataShardService) -> None:
        super().__init__()
        self._service = service
        self._steps = 0
        self._reported_at = 0.0

    def on_train_batch_end(self, step: int, logs: dict[str, Any] | None = None) -> None:
        given = logs or {}
        self._service.report_batch_done(int(given.get("batch_size") or 0) or None)
        self._steps += 1
        now = time.monotonic()
        if now >= self._reported_at + _STEP_SECONDS:
            self._reported_at = now
            self._tell(given)

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._tell(logs or {})
        self._service.flush()

    def _tell(self, logs: dict[str, Any]) -> None:
        loss = logs.get("loss")
        if isinstance(loss, (list, tuple)):
            loss = loss[0] if loss else None
        self._service.report_global_step(self._steps, None if loss is None else float(loss))
