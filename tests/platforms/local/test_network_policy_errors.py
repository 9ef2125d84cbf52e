"""A test's network that cannot look at policies any more says so at its end: what went through it proves nothing."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from e2e.cluster import policies


def test_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "_restore", lambda lines: None)
    monkeypatch.setattr(policies, "_LOOK_SECONDS", 0.0)
    times, failed = itertools.count(), threading.Event()

    def look() -> tuple[list[Any], list[Any]]:
        if next(times):
            failed.set()
            raise OSError("connection refused")
        return [], []

    with pytest.raises(OSError, match="connection refused"), policies.heeded(look):
        assert failed.wait(40.0)
