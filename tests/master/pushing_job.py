"""A job in miniature whose workers push batches first and report them later, or never.

What the model has had is written down beside the ledger (`model`), and must be what the ledger says: whenever it is
frozen, and in the end. Workers hold several shards, one batch of theirs may be on its way, and when they end, be it by
a failure of their own, the job gets what a fence would find out: their last push, and a batch that has reached some
of the servers.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from elasticdl.master.commands.checkpoints import FinishCheckpoint, PassBarrier
from elasticdl.master.commands.command import Command
from elasticdl.master.commands.nodes import PartialPush, PushCredit, ReportFailure
from elasticdl.master.commands.shards import ReportProgress, TruncateLease
from elasticdl.master.services.directives import directive_for
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import EndReason
from tests.master.conftest import ToyJob, ToyWorker

R = TypeVar("R")

# A worker reads ahead, so it has a few.
_MOST_SHARDS = 3
# Servers, a hex digit of bucket bits each.
SERVERS = 3


@dataclass
class Shard:
    """A shard that a worker holds. What lies before the position has been computed."""

    lease_id: int
    epoch: int
    position: int
    end: int
    batches: int = 0
    # The servers that have these samples already.
    applied: frozenset[int] = frozenset()


@dataclass
class PushingWorker(ToyWorker):
    generation: int = 0
    shards: list[Shard] = field(default_factory=list)
    # The newest shard that is gone through.
    passed: int = 0
    # A batch that has been computed and has not reached the servers: the shard, and where it begins.
    under_way: tuple[Shard, int] | None = None
    last_push: PushCredit | None = None
    unreported: dict[int, tuple[int, int, int, bool]] = field(default_factory=dict)
    answered: set[tuple[int, int]] = field(default_factory=set)
    # Of one that has failed: so much later its process is gone.
    lingers: int | None = None


class PushingJob(ToyJob):
    make_worker = PushingWorker

    def __init__(self, plan: JobSettings, *, seed: int, sizes: dict[str, int]) -> None:
        super().__init__(plan, sizes=sizes)
        self._dice = random.Random(seed)
        # How often each server has had each sample of each epoch; the same of checkpoints by their paths.
        self.model: Counter[tuple[int, int, int]] = Counter()
        self._copies: dict[str, Counter[tuple[int, int, int]]] = {}

    def do(self, command: Command[R]) -> R:
        generation = self.state.generation
        if isinstance(command, PassBarrier) and self.plan.servers:
            # Of an older model nothing is taken any more.
            pushing = [self._worker(name) for name in self.workers]
            assert not any(worker.under_way for worker in pushing if worker.generation == generation)
            self.check()
        result = super().do(command)
        if isinstance(command, PassBarrier) and self.state.cycle.pending is not None:
            # Nothing else can be saved before this is.
            self._copies["newest"] = self.model.copy()
        elif isinstance(command, FinishCheckpoint) and self.state.saved is not None:
            self._copies[self.state.saved.path] = self._copies["newest"]
        if self.state.generation != generation:
            self._lose_model()
        return result

    def _lose_model(self) -> None:
        self.model = self._copies.get(self.state.restore_from, Counter()).copy()

    def check(self) -> None:
        """The model has had what the ledger counts, and nothing twice."""
        twice = {sample: times for sample, times in self.model.items() if times > 1}
        assert not twice
        servers = Counter((epoch, sample) for epoch, sample, _ in self.model)
        complete = [sample for sample, count in servers.items() if count == SERVERS]
        assert len(complete) == self.state.ledger.samples_done("training")

    # -- ends ------------------------------------------------------------------------------------------------

    def end(
        self, name: str, reason: EndReason = EndReason.KILLED, exit_code: int | None = None, **more: Any
    ) -> None:
        worker = self.workers.get(name)
        if isinstance(worker, PushingWorker) and worker.generation == self.state.generation:
            dice = self._dice.random() if worker.under_way else 0.0
            if dice > 0.6:
                self._land(worker)
            elif dice > 0.3 and self.plan.servers:
                more["partial"] = self._land_partly(worker)
            if self.plan.servers:
                more["credit"] = worker.last_push
        super().end(name, reason, exit_code, **more)
        if worker is not None and self.plan.worker_owns_state:
            self._lose_model()

    def fail(self, name: str) -> None:
        """The program raises, or there is no memory for it. Its process ends a little later."""
        worker = self._worker(name)
        lease_id = worker.shards[0].lease_id if worker.shards else 0
        kind = self._dice.choice(["program", "memory"])
        self.do(
            ReportFailure(
                node=name,
                kind=kind,
                message="bad",
                traceback="",
                lease_id=lease_id if kind == "program" else 0,
            )
        )
        worker.lingers = self._dice.randrange(4)

    def _worker(self, name: str) -> PushingWorker:
        worker = self.workers[name]
        assert isinstance(worker, PushingWorker)
        return worker

    # -- work ------------------------------------------------------------------------------------------------

    def work(self, worker: ToyWorker) -> bool:
        assert isinstance(worker, PushingWorker)
        if worker.generation != self.state.generation:
            worker.generation = self.state.generation
            worker.shards, worker.unreported = [], {}
            worker.under_way = worker.last_push = None
        if worker.lingers is not None:
            self._linger(worker, worker.lingers)
            return True
        directive = directive_for(self.state, worker.name, save_to="somewhere")
        if directive.drain or directive.barrier_requested > max(worker.barrier, directive.barrier_passed):
            self._land(worker)
            self._report(worker)
        return super().work(worker)

    def _linger(self, worker: PushingWorker, left: int) -> None:
        if left == 0:
            self.end(worker.name, EndReason.ERROR, 1)
            return
        worker.lingers = left - 1
        if self._dice.random() < 0.5:
            self._land(worker)

    def _give_up(self, worker: ToyWorker, lease_id: int, end: int) -> bool:
        assert isinstance(worker, PushingWorker)
        if (lease_id, end) in worker.answered or lease_id <= worker.passed:
            return False
        worker.answered.add((lease_id, end))
        (shard,) = (shard for shard in worker.shards if shard.lease_id == lease_id)
        shard.end = max(end, shard.position)
        self.do(TruncateLease(worker=worker.name, lease_id=lease_id, end=shard.end))
        return True

    def _train(self, worker: ToyWorker) -> bool:
        assert isinstance(worker, PushingWorker)
        if worker.under_way:
            self._land(worker)
            return True
        while worker.shards and worker.shards[0].position >= worker.shards[0].end:
            worker.passed = worker.shards.pop(0).lease_id
        if worker.unreported and (not worker.shards or self._dice.random() < 0.3):
            self._report(worker)
            return True
        if not worker.shards or (len(worker.shards) < _MOST_SHARDS and self._dice.random() < 0.4):
            for lease in self._lease(worker, "training"):
                shard = Shard(
                    lease_id=lease.lease_id,
                    epoch=lease.epoch,
                    position=lease.start,
                    end=lease.end,
                    applied=frozenset(server for server, bits in enumerate(lease.applied) if bits == "f"),
                )
                worker.shards.append(shard)
        if not worker.shards:
            return self.state.work.propose_split("training", worker.name)
        shard = worker.shards[0]
        worker.under_way = (shard, shard.position)
        shard.position = min(shard.position + self.plan.batch_size, shard.end)
        shard.batches += 1
        return True

    def _land(self, worker: PushingWorker) -> None:
        """The batch that is on its way has reached all servers."""
        if worker.under_way is None:
            return
        shard, start = worker.under_way
        worker.under_way = None
        self._apply(shard, start, range(SERVERS))
        worker.unreported[shard.lease_id] = (shard.lease_id, shard.position, shard.batches, False)
        worker.last_push = PushCredit(lease_id=shard.lease_id, position=shard.position, batches=shard.batches)

    def _land_partly(self, worker: PushingWorker) -> PartialPush:
        """The worker ends in the middle of its push."""
        assert worker.under_way is not None
        shard, start = worker.under_way
        servers = self._dice.sample(range(SERVERS), self._dice.randrange(1, SERVERS))
        self._apply(shard, start, servers)
        return PartialPush(
            lease_id=shard.lease_id,
            position=shard.position,
            batches=shard.batches,
            buckets="".join("f" if server in servers else "0" for server in range(SERVERS)),
        )

    def _apply(self, shard: Shard, start: int, servers: Iterable[int]) -> None:
        for server in servers:
            if server not in shard.applied:
                self.model.update((shard.epoch, sample, server) for sample in range(start, shard.position))

    def _report(self, worker: PushingWorker) -> None:
        progress, worker.unreported = list(worker.unreported.values()), {}
        if not progress:
            return
        worker.reports += 1
        lost = self.do(
            ReportProgress(
                worker=worker.name,
                report_id=worker.reports,
                progress=progress,
                bad=[],
                loss_sum=1.0,
                loss_batches=1,
                stop_training=False,
            )
        )
        assert lost == []
