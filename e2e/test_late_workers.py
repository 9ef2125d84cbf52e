"""A worker that is still importing its framework when the job is over is not waited for."""

from __future__ import annotations

from e2e.plain import Bench

# Where the framework is imported; it never comes to an end.
SLOW = """
while os.environ["ELASTICDL_NODE"] == "worker-1":
    time.sleep(0.01)

import torch
"""


def test_the_job_ends_without_it(bench: Bench) -> None:
    bench.definition(("\nimport torch\n", SLOW))
    bench.train("--num_workers=2", "--job_name=late").succeeded("Exact: every sample")
    log = (bench.home / "jobs" / "late" / "logs" / "worker-1.log").read_text()
    assert "There is nothing to do for this worker: it ends before it has begun." in log
