"""Many kills at random: workers, the parameter server, the master, at any moment; the audit is exact every time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import psutil
import pytest

SIZE = 1437


@pytest.mark.parametrize("seed", range(4))
def test_random_kills(start_gated: Callable[..., Any], gates: Any, seed: int) -> None:
    choose = random.Random(seed)
    job = start_gated(
        "--num_epochs=3",
        "--evaluation_steps=25",
        "--relaunch_on_worker_failure=100",
        environment={"ELASTICDL_TEST_SLOW": "0.02"},
    )
    kills = 6
    gates.wait_for("train")
    while kills and job.process.poll() is None:
        # The servers' death sends everybody back to the last checkpoint, so they die less often.
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
        while job.process.poll() is None and (job.status().get("step") or 0) < target:
            pass
    job.assert_exact(epochs=3, size=SIZE)
