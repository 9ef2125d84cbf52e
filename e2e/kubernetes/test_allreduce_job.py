"""Workers that train by all-reduce as pods: one is killed in the middle of a step, the others go on from there, and the
one that takes its place is given the model by them. They reach each other where the network heeds the job's policy.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from e2e.cluster.places import Cluster
from e2e.cluster.policies import heeded
from e2e.cluster.selfmade import SelfMade
from e2e.conftest import wait_until
from e2e.kubernetes.held import MASTER, NAME, HeldJob

# Of digits.
SIZE = 1437


def test_a_member_is_killed_in_the_middle_of_a_step(cluster: Cluster, held: HeldJob, digits: Path) -> None:
    def policies() -> contextlib.AbstractContextManager[None]:
        return heeded(lambda: (held.kubectl.list("pods"), held.kubectl.list("networkpolicies")))

    held.limit(0)
    with policies() if isinstance(cluster, SelfMade) else contextlib.nullcontext():
        held.start_model(
            digits,
            "--distribution_strategy=AllreduceStrategy",
            "--num_workers=3",
            "--num_epochs=2",
            "--minibatch_size=16",
            framework="torch",
        )
        wait_until(lambda: len(members(held)) == 3, "all three are there")
        before = held.uids()
        held.limit(5, "worker-1")
        # Far enough to go on without it, and not to the end before another comes.
        held.limit(20)
        held.wait_for_held(5, "worker-1")
        held.kubectl("delete", "pod", f"elasticdl-{NAME}-worker-1", "--grace-period=1", "--wait=false")
        wait_until(lambda: "worker-3" in members(held), "another takes its place")
        assert held.ends_exactly(epochs=2, size=SIZE) == [0, 0]
    after = held.uids()
    assert {node: after[node] for node in ("worker-0", "worker-2")} == {
        node: before[node] for node in ("worker-0", "worker-2")
    }
    assert begun_at(held, "worker-3") > 0


def members(held: HeldJob) -> list[str]:
    """Of the newest round."""
    rounds = re.findall(r"Round \d+: (.*)\.", held.kubectl("logs", MASTER))
    return rounds[-1].split(", ") if rounds else []


def begun_at(held: HeldJob, worker: str) -> int:
    """The step of the model that a worker was given when it came."""
    found = re.search(
        r"Round \d+: \d of \d, at step (\d+)", held.kubectl("logs", f"elasticdl-{NAME}-{worker}")
    )
    assert found, f"{worker} was in no round"
    return int(found[1])
