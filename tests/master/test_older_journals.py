"""A journal of an older version is replayed to what was answered when it was written, though commands have changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.journal import Journal
from elasticdl.master.master import Master, journal_folder
from elasticdl.master.plan import Plan
from elasticdl.master.state import JobState
from elasticdl.platforms.platform import Platform

SPEC = JobSpec.build(
    job_name="older",
    model_zoo="zoo",
    model_def="a.b.c",
    training_data="data",
    num_workers=2,
    num_ps=1,
    minibatch_size=4,
    num_minibatches_per_task=2,
    shuffle=False,
)
STATUS = {"name": "worker-0", "role": "worker", "phase": "failed", "exit_code": None, "message": ""}
FAILED = {"node": "worker-0", "kind": "program", "message": "bad", "traceback": "", "lease_id": 1}


def lease(worker: str, request_id: int) -> tuple[str, dict[str, Any]]:
    return "lease", {"dataset": "training", "worker": worker, "count": 1, "request_id": request_id}


def recovered(folder: Path, platform: Platform, *commands: tuple[str, dict[str, Any]], old: bool) -> JobState:
    """What comes of these, after worker-0 has got samples [0, 8) and [8, 16)."""
    state = JobState(Plan.of(SPEC))
    for name in ("ps-0", "worker-0", "worker-1"):
        state.apply("join", {"node": name, "incarnation": "i", "address": "here"})
    state.apply("announce", {"dataset": "training", "size": 100})
    for number in (1, 2):
        state.apply(*lease("worker-0", number))
    snapshot = state.snapshot()
    if old:
        del snapshot["form"], snapshot["failed"]
    with Journal(journal_folder(folder)) as journal:
        journal.compact(snapshot)
        journal.append_many({"do": command, "with": arguments} for command, arguments in commands)
    master = Master(spec=SPEC, folder=folder, platform=platform, token="t", environment={})
    master.recover()
    master._journal.close()
    master._events.close()
    return master.state


@pytest.mark.parametrize(("old", "start"), [(True, 0), (False, 16)])
def test_a_failed_worker_lost_its_shards_at_once(
    tmp_path: Path, nowhere: Platform, old: bool, start: int
) -> None:
    state = recovered(tmp_path, nowhere, ("fail", FAILED), lease("worker-1", 1), old=old)
    assert [held.start for held in state.ledger.held_by("worker-1")] == [start]


@pytest.mark.parametrize(("old", "start"), [(True, 0), (False, 12)])
def test_a_dead_worker_was_credited_with_one_shard(
    tmp_path: Path, nowhere: Platform, old: bool, start: int
) -> None:
    status = {**STATUS, "reason": "killed"}
    ended = {"status": status, "credit": {"lease_id": 2, "position": 12, "batches": 1}}
    state = recovered(tmp_path, nowhere, ("observe", ended), lease("worker-1", 1), old=old)
    assert [held.start for held in state.ledger.held_by("worker-1")] == [start]
