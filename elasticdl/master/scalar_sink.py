"""The destinations of a job's scalars: TensorBoard's file and the runs on experiment trackers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ScalarSink(Protocol):
    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Takes values of one step, and returns at once. Raises `UserError` for a disk that is full."""
