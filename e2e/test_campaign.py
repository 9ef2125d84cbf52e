"""A few runs of the campaign (`e2e/campaign`), always the same: each strategy once and each kind of fault once."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.campaign.faults import is_available
from e2e.campaign.runs import Outcome, Run, check

RUNS = [
    ("servers", "zombies"),
    ("servers", "partitions"),
    ("one-server", "clock"),
    ("synchronous", "replays"),
    ("local", "kills"),
    ("allreduce", "kills"),
    ("servers", "disk"),
]


@pytest.mark.parametrize(("strategy", "fault"), RUNS)
def test_fault_leaves_each_sample_applied_once(tmp_path: Path, strategy: str, fault: str) -> None:
    assert is_available(fault, tmp_path), f"{fault}: it needs root, and `make e2e-programs`"
    checked = check(Run(seed=1, strategy=strategy, fault=fault), tmp_path)
    # A full disk may end the job.
    others = (Outcome.RESUMED, Outcome.EXPLAINED) if fault == "disk" else ()
    assert checked.outcome in (Outcome.EXACT, *others)
