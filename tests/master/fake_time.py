"""An event loop whose time passes as fast as all tasks wait, and a clock that a test sets."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class _Selector(selectors.DefaultSelector):
    """Waits for nothing: the time that it was to wait has passed."""

    passed = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.passed += timeout or 0.0
        return super().select(0)


class FakeTime(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._fake = _Selector()
        super().__init__(self._fake)

    def time(self) -> float:
        return self._fake.passed


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now
