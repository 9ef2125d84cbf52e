"""The snapshot in a job's record: small enough for an object of a cluster, and only for the job that it is of."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec, from_yaml, to_yaml
from elasticdl.master.commands.nodes import JoinNode, ObserveNode
from elasticdl.master.commands.shards import AnnounceDataset, LeaseShards
from elasticdl.master.job_state import JobState
from elasticdl.master.master import Master
from elasticdl.master.recovery.remote_snapshot import identity, pack, run_of, unpack
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import Platform
from tests.master.node_statuses import node_status

LIMIT = 200_000


def spec(**flags: Any) -> JobSpec:
    given = {"model_zoo": "zoo", "model_def": "m.m.custom_model", "training_data": "data", "job_name": "mine"}
    return JobSpec.build(**{**given, "num_workers": 100, "num_ps": 10, **flags})


def busy_state(workers: int) -> JobState:
    """Every worker holds shards, was replaced once, and has the longest history."""
    state = JobState(JobSettings(workers=workers, servers=10, batch_size=32, shard_size=256, epochs=1000))
    for round_ in range(2):
        for node in state.roster.wanted():
            state.apply(JoinNode(node=node.name, incarnation="0" * 32, address="10.200.100.100:50010"))
        for node in list(state.roster.alive("worker")) if round_ == 0 else []:
            status = {
                "name": node.name,
                "role": "worker",
                "phase": "failed",
                "reason": "killed",
                "exit_code": None,
                "message": "Preempted by a pod of another priority class. " * 50,
            }
            state.apply(ObserveNode(status=node_status(status)))
    state.apply(AnnounceDataset(dataset="training", size=10**12))
    for number, node in enumerate(state.roster.alive("worker")):
        for request in range(3):
            request_id = number * 10 + request + 1
            state.apply(LeaseShards(dataset="training", worker=node.name, count=1, request_id=request_id))
    state.epochs.ended = [
        {"epoch": e, "metrics": {"auc": 0.123456789}, "loss": 0.123456789} for e in range(9999)
    ]
    state.evaluations.results = [
        {"step": e, "epoch": e, "metrics": {"auc": 0.123456789}} for e in range(9999)
    ]
    state.ending.last_error = "Traceback\n" * 100_000
    return state


def test_of_a_hundred_workers() -> None:
    state = busy_state(100)
    text = pack(state.snapshot(), of=identity(spec(), "run"))
    assert len(text.encode()) < LIMIT
    restored = JobState(state.plan)
    restored.restore(unpack(text, of=identity(spec(), "run")))
    assert restored.ledger.snapshot() == state.ledger.snapshot()
    assert set(restored.roster.nodes) == set(state.roster.nodes)


def test_of_data_that_is_damaged_everywhere() -> None:
    state = busy_state(100)
    for place in range(5000):
        state.ledger.mark_bad(
            "training",
            place * 10,
            place * 10 + 1,
            f"/data/part-{place % 7}.rec, byte {place * 4711}",
            "wrong checksum",
        )
    text = pack(state.snapshot(), of=identity(spec(), "run"))
    assert len(text.encode()) < LIMIT
    assert unpack(text, of=identity(spec(), "run"))["ledger"] == json.loads(
        json.dumps(state.ledger.snapshot())
    )


def test_small_jobs_can_be_read_by_people() -> None:
    state = JobState(JobSettings(workers=2))
    document = json.loads(pack(state.snapshot(), of=identity(spec(), "run")))
    assert document["job"] == "mine"
    assert document["state"]["ledger"]["next_lease"] == 1


@pytest.mark.parametrize(
    ("other", "run", "why"),
    [
        (spec(job_name="yours"), "run", "another one"),
        (spec(), "another", "another one"),
        (spec(minibatch_size=7), "run", "another JobSpec"),
    ],
)
def test_another_job_is_refused(other: JobSpec, run: str, why: str) -> None:
    text = pack(JobState(JobSettings(workers=2)).snapshot(), of=identity(spec(), "run"))
    with pytest.raises(UserError, match=why):
        unpack(text, of=identity(other, run))


def test_a_master_that_would_write_the_job_in_other_words(tmp_path: Path, nowhere: Platform) -> None:
    """One of a newer version, which knows a flag more than the one that the job was submitted with."""
    submitted = "".join(line for line in to_yaml(spec()).splitlines(True) if "stall_factor:" not in line)
    of = identity(spec(), run_of("t"), submitted=submitted)
    kept = pack(JobState(JobSettings.of(spec())).snapshot(), of=of)
    read = from_yaml(submitted)
    assert to_yaml(read) != submitted
    (tmp_path / "journal").mkdir()
    master = Master(
        spec=read, folder=tmp_path, platform=nowhere, token="t", environment={}, submitted=submitted
    )
    master.recover(kept)
    assert master.state.reclaim.is_collecting
    master._journal.close()
    master._events.close()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format":1}', '{"format":99}', "null"])
def test_invalid_snapshot_is_rejected(text: str) -> None:
    with pytest.raises(UserError, match="snapshot"):
        unpack(text, of=identity(spec(), "run"))


def test_run_identity_is_a_digest_of_the_token() -> None:
    assert run_of("secret") == run_of("secret") != run_of("another")
    assert "secret" not in run_of("secret")
