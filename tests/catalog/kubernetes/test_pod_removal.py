"""Which pods are removed by force, and when."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.catalog.kubernetes.pod_removal import is_overdue
from tests.catalog.api_server import RUNNING, UNREACHABLE

LEAVING = {"name": "w", "deletionTimestamp": "2026-11-16T05:35:39Z", "deletionGracePeriodSeconds": 30}


@pytest.mark.parametrize(
    ("status", "seconds", "overdue"),
    [(RUNNING, 0, False), (RUNNING, 35, False), (RUNNING, 36, True), (UNREACHABLE, 0, True)],
)
def test_pod_is_overdue_after_its_grace_or_with_an_unreachable_machine(
    status: Any, seconds: float, overdue: bool
) -> None:
    assert is_overdue({"metadata": LEAVING, "status": status}, seconds=seconds) is overdue
