"""An optimizer of the user's own, in a module that needs no framework: parameter servers import it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import elasticdl


class Momentum(elasticdl.Optimizer):
    slots: Mapping[str, float] = {"sum": 0.0}

    def __init__(self, learning_rate: float = 0.01, keep: float = 0.5) -> None:
        super().__init__(learning_rate)
        self.keep = keep

    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        slots["sum"] = self.keep * slots["sum"] + gradient
        return value - learning_rate * slots["sum"]


class Careless(elasticdl.Optimizer):
    def update(self, value: Any, gradient: Any, slots: Any, learning_rate: float, step: Any) -> Any:
        return value - learning_rate * gradient * slots["missing"]
