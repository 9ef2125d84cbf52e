"""The map of buckets follows what happens to the parameter servers of a job."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

from elasticdl.master.commands.bucket_placement import (
    AdoptBucketMap,
    AdvanceMigration,
    RebalanceBuckets,
    ReplanBuckets,
)
from elasticdl.master.commands.checkpoints import FinishCheckpoint
from elasticdl.master.commands.job import StopJob
from elasticdl.master.commands.nodes import JoinNode, ScaleRole
from elasticdl.master.servers.bucket_placement import plain
from elasticdl.master.services.directives import directive_for
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import EndReason
from elasticdl.ps.core.buckets import BUCKETS, NO_SERVER, BucketMap, first_map

PLAN = JobSettings(servers=2, replicas=2, workers=1, batch_size=5, shard_size=10)


@pytest.fixture
def job(toy_job: Any) -> Any:
    started = toy_job(PLAN)
    started.start_nodes()
    return started


def placed(job: Any) -> BucketMap:
    assert job.state.placing.map is not None
    found: BucketMap = job.state.placing.map
    return found


def let_move(job: Any) -> None:
    """Servers do what the map asks of them until it asks for nothing more."""
    for _ in range(1000):
        now = placed(job)
        if not now.migrating and not now.handover:
            return
        joined = {node.slot: node.incarnation for node in job.state.roster.alive("ps")}
        job.do(
            AdvanceMigration(
                version=now.version,
                filled=[(bucket, server, joined[server]) for bucket, server in now.migrating.items()],
                taken=list(now.handover),
            )
        )
    raise AssertionError("the moves do not come to an end")


def copies(job: Any) -> Counter[int]:
    now = placed(job)
    return Counter([*now.primary, *now.backup])


def test_there_is_a_map_when_all_have_joined(toy_job: Any) -> None:
    job = toy_job(PLAN)
    for node in [n for n in job.state.roster.wanted() if n.role == "ps"]:
        assert job.state.placing.map is None
        assert job.state.ps_addresses() == []
        job.do(JoinNode(node=node.name, incarnation=f"i-{node.name}", address=f"here:{node.number}"))
    assert placed(job) == first_map(2, replicas=2)
    directive = directive_for(job.state, "worker-0", save_to="")
    assert list(directive.ps_addresses) == ["here:0", "here:1"]
    assert BucketMap.from_wire(directive.ps_map) == placed(job)


def test_a_backup_takes_over_and_gives_back(job: Any) -> None:
    job.end("ps-0")
    assert set(placed(job).primary) == {1}
    assert set(placed(job).backup) == {NO_SERVER}
    assert job.state.generation == 1
    assert job.state.ps_addresses() == ["", "here:1"]
    job.start_nodes()
    assert job.state.roster.nodes["ps-2"].slot == 0
    assert set(placed(job).migrating.values()) == {0}
    let_move(job)
    assert Counter(placed(job).primary) == {0: 128, 1: 128}
    assert NO_SERVER not in placed(job).backup
    assert job.state.ps_addresses() == ["here:2", "here:1"]


def test_both_copies_are_lost(job: Any) -> None:
    before = placed(job).version
    job.end("ps-0")
    job.end("ps-1")
    assert job.state.generation == 2
    assert job.state.placing.map is None
    assert job.state.ps_addresses() == []
    job.start_nodes()
    assert placed(job).version > before
    assert set(placed(job).primary) == {0, 1}


def test_without_replicas_a_loss_is_a_loss(toy_job: Any) -> None:
    job = toy_job(JobSettings(servers=2, replicas=1, batch_size=5, shard_size=10))
    job.start_nodes()
    job.end("ps-1")
    assert job.state.generation == 2


def test_more_and_fewer_servers(job: Any) -> None:
    job.do(ScaleRole(role="ps", target=4))
    job.start_nodes()
    let_move(job)
    assert copies(job) == dict.fromkeys(range(4), 128)
    job.do(ScaleRole(role="ps", target=1))
    servers = job.state.roster.alive("ps")
    assert not any(node.draining for node in servers), "they still hold something"
    let_move(job)
    assert set(placed(job).primary) == {0}
    assert {node.name for node in servers if node.draining} == {"ps-1", "ps-2", "ps-3"}
    assert job.state.ps_addresses() == ["here:0"]
    assert job.state.generation == 1


def test_lost_server_is_replaced_while_others_drain(job: Any) -> None:
    job.do(ScaleRole(role="ps", target=4))
    job.start_nodes()
    let_move(job)
    job.do(ScaleRole(role="ps", target=2))
    job.end("ps-0")
    assert [(node.name, node.slot) for node in job.state.roster.wanted()] == [("ps-4", 0)]
    job.start_nodes()
    assert not job.state.placing.waits
    let_move(job)
    assert copies(job) == {0: 256, 1: 256}
    assert {node.name for node in job.state.roster.alive("ps") if node.draining} == {"ps-2", "ps-3"}


def test_lost_draining_server_is_not_replaced(job: Any) -> None:
    job.do(ScaleRole(role="ps", target=4))
    job.start_nodes()
    let_move(job)
    job.do(ScaleRole(role="ps", target=2))
    job.end("ps-3")
    assert job.state.roster.wanted() == []
    let_move(job)
    assert copies(job) == {0: 256, 1: 256}


@pytest.fixture(params=[1, 2], ids=["one copy", "two copies"])
def leaving(request: Any, toy_job: Any) -> Any:
    """A job of three servers, of which one is drained and is desired again before it has ended."""
    job = toy_job(JobSettings(servers=3, replicas=request.param, workers=1, batch_size=5, shard_size=10))
    job.start_nodes()
    job.do(ScaleRole(role="ps", target=2))
    let_move(job)
    assert job.state.roster.nodes["ps-2"].draining
    job.do(ScaleRole(role="ps", target=3))
    return job


def is_even(job: Any) -> bool:
    found = Counter(placed(job).primary)
    return found.keys() == {0, 1, 2} and max(found.values()) - min(found.values()) <= 1


def test_nothing_goes_to_a_server_that_goes(leaving: Any) -> None:
    assert leaving.state.placing.present == [0, 1]
    assert leaving.state.placing.waits
    assert not leaving.state.placing.moving
    assert leaving.state.ps_addresses() == ["here:0", "here:1"]


def test_the_end_of_a_drained_server_leaves_its_successor_alone(leaving: Any) -> None:
    leaving.start_nodes()
    assert leaving.state.roster.nodes["ps-3"].slot == 2
    assert leaving.state.ps_incarnations() == ["i-ps-0", "i-ps-1", "i-ps-3"]
    let_move(leaving)
    assert is_even(leaving)
    before = placed(leaving)
    leaving.end("ps-2", EndReason.COMPLETED, 0)
    assert placed(leaving) == before
    assert leaving.state.generation == 1
    assert leaving.state.ps_addresses() == ["here:0", "here:1", "here:3"]
    assert leaving.replayed().snapshot() == leaving.state.snapshot()


def test_a_drained_server_ends_while_its_successor_is_filled(leaving: Any) -> None:
    leaving.start_nodes()
    before = placed(leaving)
    assert set(before.migrating.values()) == {2}
    leaving.end("ps-2", EndReason.COMPLETED, 0)
    assert placed(leaving) == before, "nothing is restarted"
    let_move(leaving)
    assert is_even(leaving)
    assert leaving.state.generation == 1


def test_a_drained_server_ends_before_its_successor_joins(leaving: Any) -> None:
    waiting = [node.name for node in leaving.state.roster.wanted()]
    assert waiting == ["ps-3"]
    before = placed(leaving)
    leaving.end("ps-2", EndReason.COMPLETED, 0)
    assert placed(leaving) == before
    leaving.start_nodes()
    let_move(leaving)
    assert is_even(leaving)
    assert leaving.state.generation == 1


def test_the_successor_of_a_server_that_still_goes_is_lost(leaving: Any) -> None:
    """It is not taken for the other one."""
    leaving.start_nodes()
    let_move(leaving)
    leaving.end("ps-3")
    if leaving.plan.replicas == 1:
        assert leaving.state.generation == 2
        assert leaving.state.placing.map is None
    else:
        assert leaving.state.generation == 1
        assert placed(leaving).servers == {0, 1}
    leaving.start_nodes()
    let_move(leaving)
    assert is_even(leaving)
    assert leaving.state.ps_addresses() == ["here:0", "here:1", "here:4"]


def test_a_master_that_has_forgotten_the_successor_does_not_take_the_other_one_for_it(leaving: Any) -> None:
    newer = first_map(3, replicas=leaving.plan.replicas, version=99)
    leaving.do(AdoptBucketMap(generation=1, buckets=plain(newer)))
    if leaving.plan.replicas == 1:
        assert leaving.state.generation == 2
    else:
        assert placed(leaving).servers == {0, 1}


def test_a_copy_of_the_model_keeps_buckets_where_they_are(toy_job: Any) -> None:
    job = toy_job(
        JobSettings(servers=2, replicas=2, batch_size=5, shard_size=10, evaluates=True, evaluation_steps=2),
        sizes={"training": 100, "evaluation": 20},
    )
    job.start_nodes()
    (worker,) = job.workers.values()
    while job.state.barrier is None:
        job.work(worker)
    before = placed(job)
    job.do(ScaleRole(role="ps", target=3))
    job.start_nodes()
    assert placed(job) is before
    # A loss does not wait.
    job.end("ps-1")
    assert set(placed(job).primary) == {0}
    job.start_nodes()
    assert not placed(job).migrating
    while job.state.placing.frozen:
        assert job.master_step() or job.work(worker)
    assert placed(job).migrating


@pytest.fixture
def saving(toy_job: Any) -> Any:
    """A job whose checkpoints take so long to be written that the next one is due when they are."""
    job = toy_job(
        JobSettings(servers=2, replicas=2, batch_size=5, shard_size=10, checkpoint_steps=2, epochs=20),
        sizes={"training": 100},
    )
    job.start_nodes()
    begin_saving(job)
    return job


def begin_saving(job: Any) -> None:
    (worker,) = job.workers.values()
    while job.state.cycle.pending is None:
        assert job.work(worker) or job.master_step()
    steps = job.state.ledger.steps
    while job.state.ledger.steps < steps + 3:
        assert job.work(worker)
    assert job.state.placing.frozen


def is_at_barrier(job: Any) -> bool:
    return job.state.barrier is not None


def end_saving(job: Any) -> None:
    job.do(FinishCheckpoint(barrier=job.state.cycle.pending.barrier, path="somewhere"))


def test_buckets_regain_backup_before_next_checkpoint(saving: Any) -> None:
    job = saving
    job.end("ps-1")
    job.start_nodes()
    assert set(placed(job).backup) == {NO_SERVER}
    end_saving(job)
    while NO_SERVER in placed(job).backup:
        assert job.state.barrier is None
        assert placed(job).migrating
        assert job._move()
    let_move(job)
    assert job.state.barrier is not None


def test_moves_have_a_turn_between_two_checkpoints(saving: Any) -> None:
    job = saving
    job.do(ScaleRole(role="ps", target=4))
    job.start_nodes()
    for _ in range(20):
        before = placed(job)
        end_saving(job)
        if not placed(job).migrating and not placed(job).handover:
            break
        assert not is_at_barrier(job)
        job._move()
        assert placed(job) != before
        # The others follow after the next one.
        assert is_at_barrier(job)
        begin_saving(job)
    assert copies(job) == dict.fromkeys(range(4), 128)


def test_a_stop_waits_for_no_moves(saving: Any) -> None:
    saving.end("ps-1")
    saving.start_nodes()
    end_saving(saving)
    before = saving.state.barrier
    assert before is None
    saving.do(StopJob(reason="Ctrl-C"))
    assert saving.state.barrier.save


def test_checkpoint_does_not_wait_for_missing_server(saving: Any) -> None:
    saving.end("ps-1")
    end_saving(saving)
    assert saving.state.barrier is not None


def test_missing_server_is_removed_from_map_by_replan(toy_job: Any) -> None:
    job = toy_job(JobSettings(servers=3, replicas=2, batch_size=5, shard_size=10))
    job.start_nodes()
    job.end("ps-2")
    assert not placed(job).migrating
    assert job.state.placing.waits
    job.do(ReplanBuckets())
    let_move(job)
    assert copies(job) == {0: 256, 1: 256}


def test_draining_server_stays_until_missing_one_is_replaced(job: Any) -> None:
    job.do(ScaleRole(role="ps", target=4))
    job.start_nodes()
    let_move(job)
    job.do(ScaleRole(role="ps", target=2))
    job.end("ps-0")
    job.do(ReplanBuckets())
    let_move(job)
    assert copies(job) == {1: 256, 2: 256}, "everything has two copies"
    assert {node.name for node in job.state.roster.alive("ps") if node.draining} == {"ps-3"}
    job.start_nodes()
    let_move(job)
    assert copies(job) == {0: 256, 1: 256}
    assert {node.name for node in job.state.roster.alive("ps") if node.draining} == {"ps-2", "ps-3"}


def test_kept_draining_server_causes_no_migration(job: Any) -> None:
    job.do(ScaleRole(role="ps", target=4))
    job.start_nodes()
    let_move(job)
    job.do(ScaleRole(role="ps", target=3))
    job.end("ps-0")
    job.do(ReplanBuckets())
    let_move(job)
    assert copies(job).keys() == {1, 2, 3}
    assert not job.state.placing.next_for([1] * BUCKETS)


def test_a_copy_of_a_server_that_was_there_before_counts_for_nothing(job: Any) -> None:
    job.end("ps-0")
    job.start_nodes()
    version = placed(job).version
    stale = [(bucket, server, "i-ps-0") for bucket, server in placed(job).migrating.items()]
    job.do(AdvanceMigration(version=version, filled=stale, taken=[]))
    assert placed(job).version == version


def test_busy_server_loses_buckets_by_rebalance(job: Any) -> None:
    hot = [100 if server == 0 else 1 for server in placed(job).primary]
    assert job.state.placing.next_for(hot)
    job.do(RebalanceBuckets(loads=hot))
    let_move(job)
    work = Counter[int]()
    for server, load in zip(placed(job).primary, hot, strict=True):
        work[server] += load
    assert max(work.values()) < 1.5 * min(work.values())
    assert not job.state.placing.next_for(hot)


def test_the_servers_know_a_newer_map(job: Any) -> None:
    usual = first_map(2, replicas=2, version=9)
    newer = dataclasses.replace(usual, primary=usual.backup, backup=usual.primary)
    job.do(AdoptBucketMap(generation=1, buckets=plain(newer)))
    assert placed(job).version >= 9
    assert placed(job).primary == newer.primary
    job.do(AdoptBucketMap(generation=1, buckets=plain(usual)))
    assert placed(job).primary == newer.primary, "an older one counts for nothing"
    # With a server in it that is not there any more, and had the only copy of something.
    lost = BucketMap(version=99, primary=(2,) * 256, backup=(NO_SERVER,) * 256)
    job.do(AdoptBucketMap(generation=1, buckets=plain(lost)))
    assert job.state.generation == 2


def test_a_master_that_comes_back_has_the_same_map(job: Any) -> None:
    job.end("ps-0")
    job.start_nodes()
    now = placed(job)
    some = [(bucket, server, "i-ps-2") for bucket, server in list(now.migrating.items())[:3]]
    job.do(AdvanceMigration(version=now.version, filled=some, taken=[]))
    replayed = job.replayed()
    assert replayed.placing.map == placed(job)
    assert replayed.snapshot() == job.state.snapshot()


def test_progress_by_an_older_map_is_ignored(job: Any) -> None:
    job.end("ps-0")
    job.start_nodes()
    now = placed(job)
    filled = [(bucket, server, "i-ps-2") for bucket, server in now.migrating.items()]
    job.do(AdvanceMigration(version=now.version, filled=filled, taken=[]))
    handed = placed(job)
    assert handed.handover
    job.do(AdvanceMigration(version=now.version, filled=[], taken=list(handed.handover)))
    assert placed(job) == handed


def test_checkpoint_waits_for_handover(toy_job: Any) -> None:
    job = toy_job(
        JobSettings(servers=2, replicas=2, batch_size=5, shard_size=10, evaluates=True, evaluation_steps=2),
        sizes={"training": 100, "evaluation": 20},
    )
    job.start_nodes()
    job.do(ScaleRole(role="ps", target=3))
    job.start_nodes()
    now = placed(job)
    filled = [(bucket, server, "i-ps-2") for bucket, server in now.migrating.items()]
    job.do(AdvanceMigration(version=now.version, filled=filled, taken=[]))
    assert job.state.placing.handing_over
    (worker,) = job.workers.values()
    while job.state.barrier is None:
        job.work(worker)
    now = placed(job)
    job.do(AdvanceMigration(version=now.version, filled=[], taken=list(now.handover)))
    assert not job.state.placing.handing_over
    assert placed(job).version == now.version + 1
    assert placed(job).migrating == now.migrating, "nothing else happens"
