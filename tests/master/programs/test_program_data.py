"""Data sets that programs announce: what they may say, and checkpoints of their shards."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elasticdl.master.commands.nodes import ObserveNode
from elasticdl.master.commands.programs import OpenDataset, ResetDataset, RestoreShards, RevokeLeases
from elasticdl.master.commands.shards import LeaseShards, ReportProgress
from elasticdl.master.job_state import JobState
from elasticdl.master.ledger.dataset_announcement import DatasetAnnouncement
from elasticdl.master.ledger.ledger import LedgerError
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import EndReason, NodePhase
from tests.master.node_statuses import node_status

SAID: dict[str, Any] = {"name": "d", "size": 10, "batch_size": 2, "epochs": 2, "minibatches_per_shard": 2}


def job(**changes: Any) -> JobState:
    state = JobState(JobSettings(program="command", workers=1))
    for node in state.roster.wanted():
        status = {"name": node.name, "role": node.role, "phase": NodePhase.RUNNING.value}
        state.apply(
            ObserveNode(status=node_status({**status, "reason": "", "exit_code": None, "message": ""}))
        )
    announce(state, **changes)
    return state


def announce(state: JobState, **changes: Any) -> None:
    state.apply(OpenDataset(announcement=DatasetAnnouncement(**{**SAID, **changes})))


def fetch(state: JobState, count: int = 1) -> list[Any]:
    request_id = state.ledger.next_lease
    return list(state.apply(LeaseShards(dataset="d", worker="worker-0", count=count, request_id=request_id)))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"size": 0}, "size is 0"),
        ({"size": -1}, "size is -1"),
        ({"size": 2**63 - 1}, "2\\*\\*62"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"size": 1, "drop_remainder": True}, "less than one batch"),
    ],
)
def test_nonsense_is_refused_by_name(change: dict[str, Any], word: str) -> None:
    with pytest.raises(LedgerError, match=word):
        job(**change)


def test_the_first_announcement_counts() -> None:
    state = job()
    announce(state, epochs=7, batch_size=5)
    assert state.data.announced["d"].epochs == 2


def test_two_sizes_are_a_contradiction() -> None:
    with pytest.raises(LedgerError, match="has 11 samples for one worker and 10 for another"):
        announce(job(), size=11)


def test_the_remainder_may_be_dropped() -> None:
    assert job(size=11, drop_remainder=True).ledger.spec("d").size == 10


def test_records_in_another_order_every_epoch() -> None:
    state = job(shuffle_records=True, minibatches_per_shard=5)
    first, second = fetch(state, 2)
    orders = [state.data.indices(lease) for lease in (first, second)]
    assert [sorted(order) for order in orders] == [list(range(10))] * 2
    assert orders[0] != orders[1]
    assert state.data.indices(first) == orders[0]


def test_a_checkpoint_of_shards_brings_back_what_was_not_done_then() -> None:
    state = job()
    done, held = fetch(state, 2)
    report: dict[str, Any] = {
        "worker": "worker-0",
        "report_id": 0,
        "bad": [],
        "loss_sum": 0.0,
        "loss_batches": 0,
    }
    state.apply(ReportProgress(**report, progress=[(done.lease_id, done.end, 2, False)], stop_training=False))
    content = state.data.checkpoint("d")
    listed = json.loads(content)
    assert (listed["doing"], listed["todo"]) == ([[4, 8]], [[8, 10]])
    fetch(state)
    state.apply(RestoreShards(content=content))
    assert [(x.start, x.end) for x in fetch(state, 3)] == [(4, 8), (8, 10), (0, 4)]
    assert state.ledger.lease_of(held.lease_id) is None
    assert not state.ledger.check()


def test_a_checkpoint_of_another_master_has_only_the_lists() -> None:
    state = job()
    content = {
        "dataset_name": "d",
        "todo": [[6, 8], [8, 10]],
        "doing": [[4, 6]],
        "current_epoch": 2,
        "num_epochs": 2,
    }
    state.apply(RestoreShards(content=json.dumps(content)))
    assert [(x.epoch, x.start, x.end) for x in fetch(state, 9)] == [(1, 4, 6), (1, 6, 8), (1, 8, 10)]
    assert not state.ledger.check()


@pytest.mark.parametrize(
    "change",
    [{"dataset_name": "other"}, {"todo": [[0, 100]]}, {"todo": [[0, 4], [2, 6]]}, {"current_epoch": 9}],
)
def test_a_checkpoint_that_makes_no_sense_changes_nothing(change: dict[str, Any]) -> None:
    state = job()
    fetch(state)
    before = state.snapshot()
    content = {"dataset_name": "d", "todo": [], "doing": [], "current_epoch": 1, **change}
    with pytest.raises(LedgerError):
        state.apply(RestoreShards(content=json.dumps(content)))
    assert state.snapshot() == before


def test_reset_restarts_the_data_set() -> None:
    state = job()
    fetch(state, 4)
    state.apply(ResetDataset(dataset="d"))
    assert [(x.epoch, x.start) for x in fetch(state)] == [(0, 0)]


def test_revoked_lease_is_leased_again_without_killing_worker() -> None:
    state = job()
    (lost,) = fetch(state)
    state.apply(RevokeLeases(worker="worker-0"))
    assert fetch(state)[0].start == lost.start
    assert state.roster.nodes["worker-0"].reason is EndReason.NONE
