"""Recovery from the workers' reports without a journal: generations, barriers, nodes, overlapping epochs."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from elasticdl.master.commands.checkpoints import SavedCheckpoint
from elasticdl.master.commands.nodes import JoinNode, ObserveNode, ScaleRole
from elasticdl.master.commands.programs import OpenDataset
from elasticdl.master.commands.recovery import (
    AdoptNode,
    FinishReclaim,
    RaiseGeneration,
    ReclaimShards,
    ReportedShard,
    SkipNodeNumber,
    StartReclaim,
)
from elasticdl.master.commands.shards import AnnounceDataset, LeaseShards, ReportProgress
from elasticdl.master.job_state import JobState
from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.ledger.dataset_announcement import DatasetAnnouncement
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import NodePhase
from tests.master.node_statuses import node_status

PLAN = JobSettings(workers=2, servers=1, batch_size=4, shard_size=8, epochs=2)


def started(plan: JobSettings = PLAN) -> JobState:
    state = JobState(plan)
    for node in state.roster.wanted():
        state.apply(JoinNode(node=node.name, incarnation="i", address="here:1"))
    if not plan.runs_command:
        state.apply(AnnounceDataset(dataset="training", size=40))
    return state


def lost(state: JobState, *, saved: SavedCheckpoint | None = None) -> JobState:
    """The master of now is lost; the next one has this much."""
    restored = JobState(state.plan)
    restored.restore(json.loads(json.dumps(state.snapshot())))
    restored.apply(StartReclaim(lineage="new", saved=saved))
    return restored


def tell(state: JobState, worker: str = "worker-0", **what: Any) -> list[int]:
    nothing: dict[str, Any] = {"generation": 1, "seen_generation": 1, "barrier": 0, "sizes": {}}
    shards = [ReportedShard(**shard) for shard in what.pop("shards", ())]
    return state.apply(
        ReclaimShards(**{"worker": worker, "epochs_ended": [], "shards": shards, **nothing, **what})
    )


def shard(lease_id: int, start: int, position: int, end: int, **more: Any) -> dict[str, Any]:
    wanted = {"dataset": "training", "epoch": 0, "batches": (position - start) // 4, "held": position < end}
    return {"lease_id": lease_id, "start": start, "position": position, "end": end, **wanted, **more}


def lease(state: JobState, worker: str, request_id: int, dataset: str = "training") -> Any:
    return state.apply(LeaseShards(dataset=dataset, worker=worker, count=1, request_id=request_id))[0]


def test_nothing_is_given_out_while_it_gathers() -> None:
    state = lost(started())
    assert not state.work.may_lease("training", "worker-0", 1)
    assert not state.work.propose_split("training", "worker-0")
    state.apply(FinishReclaim())
    assert state.work.may_lease("training", "worker-0", 1)


def test_a_model_that_was_lost_meanwhile_is_trained_again_from_the_checkpoint() -> None:
    state = started()
    given = lease(state, "worker-0", 1)
    state = lost(state)
    held = shard(given.lease_id, given.start, given.start + 4, given.end)
    # A worker is in the third generation; this shard is of the first.
    assert tell(state, seen_generation=3, shards=[held]) == [given.lease_id]
    assert state.generation == 4
    assert state.ledger.samples_done("training") == 0
    # And one that is still in an old one has nothing that counts either.
    assert tell(state, "worker-1", generation=3, seen_generation=3) == []
    state.apply(FinishReclaim())
    assert state.ledger.again("training", 0) == 0


def test_servers_of_a_higher_generation_count_too() -> None:
    saved = SavedCheckpoint(path="version-2", step=2, ledger=started().ledger.snapshot())
    state = lost(started(), saved=saved)
    state.apply(RaiseGeneration(above=5))
    assert (state.generation, state.restore_from, state.first_step) == (6, "version-2", 2)


def test_numbers_are_not_used_twice() -> None:
    state = started()
    before = state.ledger.next_lease
    state = lost(state)
    tell(state, barrier=17, shards=[shard(before + 40, 0, 8, 8)])
    state.apply(FinishReclaim())
    assert state.cycle.passed > 17
    assert lease(state, "worker-0", 9).lease_id > before + 40


def test_two_cannot_hold_the_same() -> None:
    state = lost(started())
    order = state.ledger.order("training", epoch=0, first=0, count=1)[0]
    mine = shard(1, order, order, order + 8)
    assert tell(state, shards=[mine]) == []
    assert tell(state, "worker-1", shards=[{**mine, "lease_id": 2}]) == [2]
    assert [x.worker for x in state.ledger.held("training")] == ["worker-0"]


def test_late_or_unknown_worker_loses_its_leases() -> None:
    state = lost(started())
    order = state.ledger.order("training", epoch=0, first=0, count=1)[0]
    assert tell(state, "worker-9", shards=[shard(1, order, order, order + 8)]) == [1]
    state.apply(FinishReclaim())
    assert tell(state, shards=[shard(1, order, order, order + 8)]) == [1]
    assert not state.ledger.held("training")


def test_telling_twice_changes_nothing() -> None:
    state = lost(started())
    order = state.ledger.order("training", epoch=0, first=0, count=1)[0]
    mine = shard(1, order, order + 4, order + 8)
    assert tell(state, shards=[mine]) == []
    before = state.snapshot()
    assert tell(state, shards=[mine]) == []
    assert state.snapshot() == before


def test_a_worker_of_after_the_snapshot_is_taken_in() -> None:
    state = lost(started())
    state.apply(AdoptNode(node="worker-5"))
    assert state.apply(JoinNode(node="worker-5", incarnation="x", address=""))
    order = state.ledger.order("training", epoch=0, first=0, count=1)[0]
    assert tell(state, "worker-5", shards=[shard(1, order, order, order + 8)]) == []
    state.apply(FinishReclaim())
    # The one that it had replaced turns out to be gone: no other replacement is needed.
    status = {"name": "worker-1", "role": "worker", "phase": "failed", "reason": "killed"}
    state.apply(ObserveNode(status=node_status({**status, "exit_code": None, "message": ""})))
    assert sorted(n.name for n in state.roster.alive("worker")) == ["worker-0", "worker-5"]
    state.apply(ScaleRole(role="worker", target=3))
    assert state.roster.nodes["worker-6"].phase is NodePhase.PENDING


def test_numbers_of_nodes_are_not_used_twice() -> None:
    state = lost(started())
    state.apply(SkipNodeNumber(role="ps", number=4))
    state.apply(FinishReclaim())
    status = {"name": "ps-0", "role": "ps", "phase": "failed", "reason": "killed"}
    state.apply(ObserveNode(status=node_status({**status, "exit_code": None, "message": ""})))
    assert [n.name for n in state.roster.alive("ps")] == ["ps-5"]


@pytest.mark.parametrize("seed", range(25))
def test_reports_on_overlapping_epochs_are_recovered_exactly(seed: int) -> None:
    """Three workers, each with a memory; all tell."""
    source = random.Random(seed)
    plan = JobSettings(program="command", workers=3, batch_size=4, shard_size=8)
    state = JobState(plan)
    for node in state.roster.wanted():
        status = {"name": node.name, "role": node.role, "phase": "running", "reason": ""}
        state.apply(ObserveNode(status=node_status({**status, "exit_code": None, "message": ""})))
    announcement = DatasetAnnouncement(
        name="d", size=42, batch_size=4, epochs=4, minibatches_per_shard=2, shuffle_shards=True
    )
    state.apply(OpenDataset(announcement=announcement))
    memories: dict[str, dict[int, dict[str, Any]]] = {f"worker-{i}": {} for i in range(3)}
    trained: Counter[tuple[int, int]] = Counter()
    kept = json.dumps(state.snapshot())
    requests = 0
    while not state.ledger.finished("d"):
        if source.random() < 0.1:
            kept = json.dumps(state.snapshot())
        if source.random() < 0.03:
            state = JobState(plan)
            state.restore(json.loads(kept))
            state.apply(StartReclaim(lineage=str(requests), saved=None))
            for worker, memory in memories.items():
                assert tell(state, worker, shards=list(memory.values())) == []
            state.apply(FinishReclaim())
            assert not state.ledger.check()
        worker = source.choice(list(memories))
        memory = memories[worker]
        held = [one for one in memory.values() if one["held"]]
        if not held or (len(held) < 3 and source.random() < 0.3):
            requests += 1
            if state.work.may_lease("d", worker, requests):
                got = lease(state, worker, requests, "d")
                memory[got.lease_id] = shard(
                    got.lease_id, got.start, got.start, got.end, dataset="d", epoch=got.epoch
                )
            continue
        chosen = source.choice(held)
        position = min(chosen["position"] + 4, chosen["end"])
        trained.update((chosen["epoch"], sample) for sample in range(chosen["position"], position))
        chosen["position"], chosen["batches"] = position, chosen["batches"] + 1
        chosen["held"] = position < chosen["end"]
        progress = [(chosen["lease_id"], position, chosen["batches"], False)]
        report: dict[str, Any] = {
            "bad": [],
            "loss_sum": 0.0,
            "loss_batches": 0,
            "stop_training": False,
            "report_id": 0,
        }
        assert state.apply(ReportProgress(worker=worker, progress=progress, **report)) == []
    audit = audit_ledger(state.ledger)
    assert audit.exact, audit.reason
    assert trained == Counter({(epoch, sample): 1 for epoch in range(4) for sample in range(42)})
    assert all(row.again == 0 for row in audit.rows)
