"""Whatever is killed, whenever: the job ends, the audit is exact, and the journal tells the same story."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.settings import JobSettings
from tests.master.pushing_job import SERVERS, PushingJob

PLANS = {
    "servers": JobSettings(
        workers=3, servers=2, batch_size=4, shard_size=16, epochs=3, evaluates=True, evaluation_steps=7
    ),
    "copies": JobSettings(
        workers=3,
        servers=3,
        replicas=2,
        batch_size=4,
        shard_size=16,
        epochs=3,
        evaluates=True,
        evaluation_steps=5,
        checkpoint_steps=4,
        gradients_wait=True,
    ),
    "local": JobSettings(
        workers=1, servers=0, batch_size=4, shard_size=16, epochs=2, evaluates=True, checkpoint_steps=5
    ),
    "no evaluation": JobSettings(
        workers=2, servers=1, batch_size=5, shard_size=20, epochs=2, has_output=True
    ),
    "steps": JobSettings(
        workers=2, servers=1, batch_size=4, shard_size=12, epochs=4, max_step=31, checkpoint_steps=6
    ),
}
SIZES = {"training": 101, "evaluation": 37}
# Maps that go from one to the next take their time.
RUNS = [(name, seed) for name in PLANS for seed in range(4 if name == "copies" else 25)]


@pytest.mark.parametrize(("name", "seed"), RUNS)
def test_ends_exact_whatever_is_killed(toy_job: Callable[..., Any], name: str, seed: int) -> None:
    plan = PLANS[name]
    job = toy_job(plan, sizes=SIZES if plan.evaluates else {"training": 101})
    source = random.Random(seed)
    kills = [12]

    def chaos() -> None:
        if kills[0] and source.random() < 0.05:
            alive = [n for n in job.state.roster.nodes.values() if n.alive and n.incarnation]
            if alive:
                kills[0] -= 1
                job.end(source.choice(alive).name)
        if source.random() < 0.03:
            job.state = job.replayed()

    job.run(random_source=source, chaos=chaos)
    assert job.state.outcome == "succeeded", job.state.message
    audit = audit_ledger(job.state.ledger)
    assert audit.exact, audit.reason
    if not plan.max_step:
        assert all(row.done == 101 for row in audit.rows if row.dataset == "training")
    assert job.replayed().snapshot() == job.state.snapshot()


@pytest.mark.parametrize(("name", "seed"), RUNS)
def test_the_model_has_had_what_the_ledger_says_whatever_is_killed_or_fails(name: str, seed: int) -> None:
    plan = replace(PLANS[name], max_node_failures=100, max_shard_failures=100)
    job = PushingJob(plan, seed=seed, sizes=SIZES if plan.evaluates else {"training": 101})
    source = random.Random(seed)
    ends = [12]

    def chaos() -> None:
        if ends[0] and source.random() < 0.05:
            alive = [n for n in job.state.roster.nodes.values() if n.alive and n.incarnation]
            if alive:
                ends[0] -= 1
                chosen = source.choice(alive)
                if chosen.role == "worker" and source.random() < 0.5:
                    job.fail(chosen.name)
                else:
                    job.end(chosen.name)
        if source.random() < 0.03:
            job.state = job.replayed()

    job.run(random_source=source, chaos=chaos)
    assert job.state.outcome == "succeeded", job.state.message
    audit = audit_ledger(job.state.ledger)
    assert audit.exact, audit.reason
    job.check()
    if not plan.max_step:
        assert len(job.model) == 101 * plan.epochs * SERVERS
    assert all(job.state.roster.nodes[name].alive for name in job.state.failed)
    assert job.replayed().snapshot() == job.state.snapshot()


@pytest.mark.parametrize("seed", range(5))
def test_without_kills_nothing_is_trained_twice(toy_job: Callable[..., Any], seed: int) -> None:
    job = toy_job(PLANS["servers"], sizes=SIZES)
    job.run(random_source=random.Random(seed))
    covered: dict[int, int] = {}
    for start, end in job.trained:
        for sample in range(start, end):
            covered[sample] = covered.get(sample, 0) + 1
    assert covered == dict.fromkeys(range(101), 3)
    assert all(row.again == 0 for row in audit_ledger(job.state.ledger).rows)


def test_every_evaluation_counts_every_sample(toy_job: Callable[..., Any]) -> None:
    job = toy_job(PLANS["servers"], sizes=SIZES)
    source = random.Random(3)

    def kill_workers() -> None:
        workers = [n for n in job.state.roster.alive("worker") if n.incarnation]
        if workers and source.random() < 0.02:
            job.end(source.choice(workers).name)

    job.run(random_source=source, chaos=kill_workers)
    assert len(job.state.results) >= 3
    assert {result["metrics"]["count"] for result in job.state.results} == {37.0}


def test_max_step_is_exact(toy_job: Callable[..., Any]) -> None:
    job = toy_job(PLANS["steps"])
    job.run()
    assert job.state.ledger.steps == 31
    assert audit_ledger(job.state.ledger).exact
