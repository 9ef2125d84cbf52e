"""The loss lines of a worker's log: the mean since the last line, every so many of its own steps."""

from __future__ import annotations

import logging

log = logging.getLogger("elasticdl.worker")


class LossLog:
    """`every`: steps between two lines, after one for the first step. 0: no lines."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._sum = 0.0
        self._count = 0
        self._total = 0

    def add(self, step: int, loss: float) -> None:
        self._sum += loss
        self._count += 1
        self._total += 1
        if self._every and (self._count >= self._every or self._total == 1):
            log.info("Loss[step=%d]: %.6f", step, self._sum / self._count)
            self._sum, self._count = 0.0, 0
