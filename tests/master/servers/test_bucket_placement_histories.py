"""Parameter servers are lost, join late or never, become more and fewer, at random and while buckets move: every place
has a server that is there or comes, nothing is lost that has a copy, and in the end all is where it should be.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from elasticdl.master.commands.bucket_placement import AdvanceMigration, RebalanceBuckets, ReplanBuckets
from elasticdl.master.commands.nodes import JoinNode, ScaleRole
from elasticdl.master.lifecycle.roster import Node
from elasticdl.master.settings import JobSettings
from elasticdl.ps.core.buckets import BUCKETS, NO_SERVER
from elasticdl.ps.replication.placement_planner import promote
from tests.random_histories import seeds


class History:
    def __init__(self, job: Any, seed: int) -> None:
        self.job = job
        self.state = job.state
        self.chance = random.Random(seed)

    # -- what happens ----------------------------------------------------------------------------------------

    def step(self) -> None:
        happens = self.chance.choices(
            [self.scale, self.lose, self.join_some, self.do_without, self.move, self.work_unevenly],
            weights=[15, 15, 20, 10, 35, 5],
        )
        happens[0]()

    def scale(self) -> None:
        self.job.do(ScaleRole(role="ps", target=self.chance.randint(1, 5)))

    def lose(self) -> None:
        servers = self.state.roster.alive("ps")
        if not servers:
            return
        node = self.chance.choice(servers)
        before, generation = self.state.placing.map, self.state.generation
        needed = before is not None and counts(node) and node.slot in before.servers
        had_a_copy = not needed or promote(before, {node.slot}) is not None
        self.job.end(node.name)
        assert (self.state.generation == generation) == had_a_copy

    def join_some(self) -> None:
        for node in self.state.roster.wanted():
            if node.role == "ps" and self.chance.random() < 0.5:
                self.join(node)

    def join(self, node: Node) -> None:
        self.job.do(JoinNode(node=node.name, incarnation=f"i-{node.name}", address=f"here:{node.number}"))

    def do_without(self) -> None:
        if self.state.placing.waits:
            self.job.do(ReplanBuckets())

    def move(self, part: float | None = None) -> None:
        """Servers say how far they are with some of what the map asks of them, or with all."""
        now = self.state.placing.map
        if now is None:
            return
        part = part or self.chance.choice([0.3, 1.0])
        joined = {node.slot: node.incarnation for node in self.state.roster.alive("ps") if counts(node)}
        self.job.do(
            AdvanceMigration(
                version=now.version,
                filled=[(b, s, joined[s]) for b, s in now.migrating.items() if self.chance.random() < part],
                taken=[b for b in now.handover if self.chance.random() < part],
            )
        )

    def work_unevenly(self) -> None:
        self.job.do(RebalanceBuckets(loads=[self.chance.choice([0, 1, 50]) for _ in range(BUCKETS)]))

    def settle(self) -> None:
        """No more events: all desired servers join, and all drained ones exit."""
        for _ in range(1000):
            before = len(self.job.journal)
            for node in self.state.roster.wanted():
                if node.role == "ps":
                    self.join(node)
            for node in self.state.roster.alive("ps"):
                if node.draining:
                    self.job.end(node.name)
            if self.state.placing.moving:
                self.move(1.0)
            if len(self.job.journal) == before:
                return
        raise AssertionError("it never comes to rest")

    # -- what must hold --------------------------------------------------------------------------------------

    def check(self) -> None:
        servers = [node for node in self.state.roster.alive("ps") if not node.draining]
        places = range(self.state.roster.targets["ps"])
        assert Counter(node.slot for node in servers if node.slot in places) == dict.fromkeys(places, 1)
        if self.state.placing.map is not None:
            assert self.state.placing.map.servers <= {node.slot for node in servers if node.incarnation}

    def check_end(self) -> None:
        places, now = set(range(self.state.roster.targets["ps"])), self.state.placing.map
        assert {node.slot for node in self.state.roster.alive("ps")} == places
        assert now.servers == places
        assert NO_SERVER not in now.backup or len(places) == 1
        assert self.job.replayed().placing.map == now


def counts(node: Node) -> bool:
    return bool(node.incarnation) and not node.draining


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(10))
def test_every_place_is_filled(toy_job: Any, seed: int) -> None:
    servers = random.Random(seed).randint(1, 4)
    job = toy_job(JobSettings(servers=servers, replicas=2, workers=1, batch_size=5, shard_size=10))
    job.start_nodes()
    history = History(job, seed)
    for _ in range(60):
        history.step()
        history.check()
    history.settle()
    history.check_end()
