"""A namespace with room for fewer pods than the job wants: it runs with those, and with all when there is room.

Its programs use the public `elasticai_api`, which knows nothing of quotas, tokens or TLS.
"""

from __future__ import annotations

import json

from e2e.conftest import wait_until
from e2e.kubernetes.held import MASTER, HeldJob


def test_job_runs_with_fewer_pods_under_quota(held: HeldJob) -> None:
    # The batch server is one of them, the master another.
    held.kubectl("create", "quota", "few", "--hard=pods=4")
    held.limit(3)
    held.start_public_program("--num_workers=4")
    wait_until(lambda: len(held.done()) == 2, "two workers are at work")
    wait_until(
        lambda: len([words for words in held.messages().values() if "exceeded quota: few" in words]) == 2,
        "the status says why the others do not come",
    )
    assert "waits: pods" in held.kubectl("logs", MASTER)
    shown = held.elasticdl.jobs("status", "job")
    assert "exceeded quota: few, requested: pods=1, used: pods=4, limited: pods=4" in shown
    # Those that wait block no others.
    held.limit(7)
    wait_until(lambda: sorted(held.done().values()) == [7, 7], "the others go on")

    more = json.dumps({"spec": {"hard": {"pods": "10"}}})
    held.kubectl("patch", "quota", "few", f"--patch={more}")
    held.wait_for_held(7, "worker-0", "worker-1", "worker-2", "worker-3")
    assert held.ends_exactly() == [0, 0]
    assert sorted(held.pods()) == ["worker-0", "worker-1", "worker-2", "worker-3"]
    assert "package /tmp/public/elasticai_api/" in held.kubectl("logs", "job-edljob-worker-3")
