"""The master is lost with its journal: an old snapshot and what workers remember are enough for an exact job."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode
from elasticdl.master.commands.recovery import (
    AdoptNode,
    FinishReclaim,
    ReclaimShards,
    ReportedShard,
    StartReclaim,
)
from elasticdl.master.job_state import JobState
from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.ledger.ledger import Ledger
from elasticdl.master.recovery.remote_snapshot import identity, pack, unpack
from elasticdl.master.settings import JobSettings
from tests.random_histories import seeds

SPEC = JobSpec.build(
    model_zoo="zoo", model_def="m.m.custom_model", training_data="data", num_workers=3, num_ps=1
)
SIZE = 101
PLANS = {
    "servers": JobSettings(workers=3, servers=1, batch_size=4, shard_size=16, epochs=3),
    "local": JobSettings(workers=1, servers=0, batch_size=4, shard_size=16, epochs=3),
    "evaluating": JobSettings(
        workers=3,
        servers=1,
        batch_size=4,
        shard_size=16,
        epochs=4,
        evaluates=True,
        evaluation_steps=7,
        checkpoint_steps=5,
    ),
    "unshuffled": JobSettings(workers=4, servers=1, batch_size=5, shard_size=5, epochs=2, shuffle=False),
}


class Memory:
    """What one worker knows of its shards by itself."""

    def __init__(self) -> None:
        self.shards: dict[int, dict[str, Any]] = {}

    def leased(self, lease: Any) -> None:
        self.shards[lease.lease_id] = {
            "lease_id": lease.lease_id,
            "dataset": lease.dataset,
            "epoch": lease.epoch,
            "start": lease.start,
            "position": lease.start,
            "end": lease.end,
            "batches": 0,
            "held": True,
        }

    @property
    def held(self) -> list[int]:
        return [lease_id for lease_id, shard in self.shards.items() if shard["held"]]


class Story:
    """A job whose master is lost at any moment, and whose workers keep a memory of their own."""

    def __init__(self, job: Any, source: random.Random) -> None:
        self.job = job
        self.source = source
        self.memories: dict[str, Memory] = {}
        self.trained: Counter[tuple[int, int]] = Counter()
        self.record = self._pack()
        self.lost = 0
        self.expected_again: Counter[int] = Counter()
        self.all_report = False
        job._train = self.train
        job._lease = self.lease

    def _pack(self) -> str:
        return pack(self.job.state.snapshot(), of=identity(SPEC, "run"))

    # -- workers ---------------------------------------------------------------------------------------------

    def lease(self, worker: Any, dataset: str) -> list[Any]:
        leases: list[Any] = type(self.job)._lease(self.job, worker, dataset)
        for lease in leases if dataset == "training" else ():
            self.memories.setdefault(worker.name, Memory()).leased(lease)
        return leases

    def train(self, worker: Any) -> bool:
        memory = self.truncated(worker.name)
        before = {x.lease_id: x for x in self.job.state.ledger.held_by(worker.name)}
        moved = bool(type(self.job)._train(self.job, worker))
        for lease_id, lease in before.items():
            after = self.job.state.ledger.lease_of(lease_id)
            position = after.position if after is not None else lease.end
            if position > lease.position:
                shard = memory.shards[lease_id]
                shard["position"], shard["batches"] = position, lease.batches + 1
                shard["held"] = position < shard["end"]
                self.trained.update((lease.epoch, sample) for sample in range(lease.position, position))
        return moved

    def truncated(self, worker: str) -> Memory:
        """A truncation that it has agreed to is in the ledger; a real worker has it in its own hands too."""
        memory = self.memories.setdefault(worker, Memory())
        ends = {lease.lease_id: lease.end for lease in self.job.state.ledger.held_by(worker)}
        for lease_id in memory.held:
            shard = memory.shards[lease_id]
            shard["end"] = ends.get(lease_id, shard["position"])
            shard["held"] = shard["position"] < shard["end"]
        return memory

    # -- the master ------------------------------------------------------------------------------------------

    def chaos(self) -> None:
        if self.source.random() < 0.1:
            self.record = self._pack()
        if self.lost < 4 and self.source.random() < 0.03 and self.job.state.sizes:
            self.lose()

    def lose(self) -> None:
        self.lost += 1
        job = self.job
        for name in job.workers:
            self.truncated(name)
        # Workers have it from their last directives.
        epochs_ended = list(job.state.epochs_ended)
        snapshot = unpack(self.record, of=identity(SPEC, "run"))
        restored = JobState(job.plan)
        restored.restore(snapshot)
        job.state = restored
        job.journal = []
        job.do(StartReclaim(lineage=f"line {self.lost}", saved=None))
        if self.source.random() < 0.5:
            # A real master goes on with a journal of its own from here.
            again = JobState(job.plan)
            again.restore(restored.snapshot())
            job.state = again
        names = list(job.workers)
        silent = [] if self.all_report else [n for n in names if self.source.random() < 0.4]
        for name in silent:
            # Died together with the master.
            del job.workers[name]
        tellers = [name for name in names if name not in silent]
        for name in tellers:
            if name not in job.state.roster.nodes:
                job.do(AdoptNode(node=name))
                job.do(JoinNode(node=name, incarnation=f"i-{name}", address=""))
        witnesses = [
            node["name"]
            for node in snapshot["roster"]["nodes"]
            if node["role"] == "worker" and node["incarnation"] and node["phase"] == "running"
        ]
        silence = any(name not in tellers for name in witnesses)
        # A worker that reports knows the ends of epochs.
        ended = epochs_ended[-1]["epoch"] if epochs_ended and tellers else -1
        self._expect(Ledger.restore(snapshot["ledger"]), tellers, silence=silence, ended=ended)
        self.source.shuffle(tellers)
        for name in tellers:
            memory = self.memories.setdefault(name, Memory())
            lost = job.do(
                ReclaimShards(
                    worker=name,
                    generation=1,
                    seen_generation=1,
                    barrier=job.workers[name].barrier,
                    sizes=job.sizes,
                    epochs_ended=epochs_ended,
                    shards=[ReportedShard(**shard) for shard in memory.shards.values()],
                )
            )
            assert not lost
            assert {x.lease_id for x in job.state.ledger.held_by(name)} == set(memory.held)
        job.do(FinishReclaim())
        assert not job.state.ledger.check()
        for node in list(job.state.roster.nodes.values()):
            if node.role == "worker" and node.alive and node.name not in tellers:
                job.end(node.name)

    def _expect(self, snapshot: Ledger, tellers: list[str], *, silence: bool, ended: int) -> None:
        """From first principles: sample by sample, what was leased and is neither done nor held."""
        snapshot.add(self.job.plan.dataset("training", SIZE))
        # What the snapshot does not know was listed by a master that is forgotten itself.
        self.expected_again = Counter(
            {epoch: snapshot.again("training", epoch) for epoch in range(self.job.plan.epochs)}
        )
        reported = [shard for name in tellers for shard in self.memories.get(name, Memory()).shards.values()]
        known = snapshot.next_lease
        held = {lease.lease_id for lease in snapshot.held("training")}
        reported = [shard for shard in reported if shard["lease_id"] >= known or shard["lease_id"] in held]
        mine = {
            (shard["epoch"], sample)
            for shard in reported
            for sample in range(shard["start"], shard["end"] if shard["held"] else shard["position"])
        }
        epoch = max([snapshot.epoch("training"), ended + 1, *(shard["epoch"] for shard in reported)])
        if epoch == self.job.plan.epochs:
            return
        given_out = set()
        if epoch == snapshot.epoch("training"):
            given_out = {
                (epoch, sample)
                for lease in snapshot.held("training")
                for sample in range(lease.position, lease.end)
            }
        first = snapshot.place("training")[1] if epoch == snapshot.epoch("training") else 0
        size = snapshot.spec("training").shard_size
        order = snapshot.order("training", epoch=epoch, first=first, count=SIZE)
        shards = [{(epoch, s) for s in range(start, min(start + size, SIZE))} for start in order]
        newest = max((place for place, shard in enumerate(shards) if shard & mine), default=-1)
        given_out.update(*shards[: newest + 1])
        for e, _ in given_out - mine if silence else ():
            self.expected_again[e] += 1


def story(toy_job: Callable[..., Any], plan: JobSettings, seed: int, *, all_report: bool) -> Story:
    source = random.Random(seed)
    sizes = {"training": SIZE, **({"evaluation": 37} if plan.evaluates else {})}
    made = Story(toy_job(plan, sizes=sizes), source)
    made.all_report = all_report
    made.job.run(random_source=source, chaos=made.chaos)
    return made


@pytest.mark.soak
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("seed", seeds(5))
def test_reports_of_all_workers_avoid_repeated_training(
    toy_job: Callable[..., Any], plan: JobSettings, seed: int
) -> None:
    recovered = story(toy_job, plan, seed, all_report=True)
    audit = audit_ledger(recovered.job.state.ledger)
    assert audit.exact, audit.reason
    assert recovered.trained == Counter({(e, s): 1 for e in range(plan.epochs) for s in range(SIZE)})
    assert all(row.again == 0 for row in audit.rows)
    # One that was under way when the master was lost is made again, over all samples.
    assert {result["metrics"]["count"] for result in recovered.job.state.results} <= {37.0}
    assert len(recovered.job.state.epochs_ended) == plan.epochs
    assert recovered.job.state.ledger.steps == plan.epochs * -(-SIZE // plan.batch_size)


@pytest.mark.soak
@pytest.mark.parametrize("plan", [PLANS["servers"], PLANS["unshuffled"]], ids=["servers", "unshuffled"])
@pytest.mark.parametrize("seed", seeds(8))
def test_unreported_work_is_trained_again_and_counted(
    toy_job: Callable[..., Any], plan: JobSettings, seed: int
) -> None:
    recovered = story(toy_job, plan, seed, all_report=False)
    audit = audit_ledger(recovered.job.state.ledger)
    assert audit.exact, audit.reason
    assert set(recovered.trained) == {(e, s) for e in range(plan.epochs) for s in range(SIZE)}
    assert {row.epoch: row.again for row in audit.rows} == {
        e: recovered.expected_again[e] for e in range(plan.epochs)
    }
