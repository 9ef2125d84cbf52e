"""Many kills at random: workers, the parameter server, the master, at any moment; the audit is exact every time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from e2e.conftest import wait_until

SIZE = 1437


@pytest.mark.parametrize("seed", range(2))
def test_random_kills_leave_exact_audit(start_gated: Callable[..., Any], gates: Any, seed: int) -> None:
    choose = random.Random(seed)
    job = start_gated(
        "--num_epochs=3",
        "--evaluation_steps=25",
        "--relaunch_on_worker_failure=100",
        environment={"ELASTICDL_TEST_SLOW": "0.02"},
    )
    kills = 8
    # The job is not over before the last kill.
    gates.hold("epoch-2")
    gates.wait_for("train")
    while kills:
        assert job.process.poll() is None, job.output + job.logs()
        # The servers' death rolls all workers back to the last checkpoint, so they die less often.
        weights = {"worker": 6, "master": 3, "ps": 1}
        alive = job.processes()
        if not alive:
            continue
        name = choose.choices(list(alive), [weights[n.rsplit("-", 1)[0]] for n in alive])[0]
        try:
            alive[name].kill()
            alive[name].wait(timeout=60)
        except psutil.NoSuchProcess:
            continue
        kills -= 1
        # So many more batches before the next: a random moment, without a clock.
        target = (job.status().get("step") or 0) + choose.randrange(1, 12)
        wait_until(
            lambda wanted=target: (job.status().get("step") or 0) >= wanted or gates.passed("epoch-2"),
            "some more steps",
        )
    gates.release("epoch-2")
    job.assert_exact(epochs=3, size=SIZE)
