"""A worker that is still importing its framework when the job is over is not waited for; nor is one for long that was
stopped before it had anything to do.
"""

from __future__ import annotations

from collections.abc import Callable

from e2e.conftest import Gates, Job
from e2e.plain import Bench

# Where the framework is imported; it never comes to an end.
SLOW = """
while os.environ["ELASTICDL_NODE"] == "worker-1":
    time.sleep(0.01)

import torch
"""


def test_job_ends_while_worker_still_imports(bench: Bench) -> None:
    bench.definition(("\nimport torch\n", SLOW))
    bench.train("--num_workers=2", "--job_name=late").succeeded("Exact: every sample")
    log = (bench.home / "jobs" / "late" / "logs" / "worker-1.log").read_text()
    assert "Exiting: there is no work for this worker." in log


def test_leader_suspended_before_its_start_is_replaced(start_gated: Callable[..., Job], gates: Gates) -> None:
    """It holds no shard, and the end of an epoch waits for it."""
    gates.hold("start-worker-0")
    job = start_gated("--stall_factor=20", "--stall_floor_seconds=10")
    gates.wait_for_held("start", "worker-0")
    job.processes()["worker-0"].suspend()
    job.assert_exact(epochs=2, size=1437)
    log = (job.folder / "logs" / "master.log").read_text()
    assert "Killing worker-0: unresponsive for " in log
