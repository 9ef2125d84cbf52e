"""Many pods are deleted together, and all of them are replaced."""

from __future__ import annotations

import time

from e2e.conftest import wait_until
from e2e.kubernetes.held import HeldJob

MANY = 30


def test_all_are_replaced(held: HeldJob) -> None:
    # Not a program that learns anything: it is about pods.
    held.start_program(f"--num_workers={MANY}", "--job_command=sleep 1000")
    before = {f"worker-{number}" for number in range(MANY)}
    wait_until(lambda: set(held.pods()) == before, f"there are {MANY} pods")
    held.wait_for_running(*before)
    begun = time.monotonic()
    held.kubectl(
        "delete", "pods", "--selector=elasticdl-replica-type=worker", "--grace-period=1", "--wait=false"
    )
    after = {f"worker-{number}" for number in range(MANY, 2 * MANY)}
    wait_until(lambda: set(held.pods()) == after, "each has a replacement")
    print(f"{MANY} pods replaced in {time.monotonic() - begun:.1f} s")
