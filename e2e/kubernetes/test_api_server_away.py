"""The API server is killed and comes back without a memory of what came before: the job goes on meanwhile, and what the
master missed it makes up for.
"""

from __future__ import annotations

import contextlib
import dataclasses

import psutil

from e2e.cluster.selfmade import SelfMade
from e2e.kubernetes.held import MASTER, HeldJob


def process_with(marks: dict[str, str]) -> psutil.Process:
    """Machines of a cluster of our own are this one, and nothing else reaches them without the API server."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if marks.items() <= process.environ().items() and "python3" in process.cmdline():
                return process
    raise AssertionError(f"there is no process with {marks}")


def test_workers_that_end_during_the_outage_are_replaced(
    own_cluster: SelfMade, alone: None, held: HeldJob
) -> None:
    held = dataclasses.replace(held, batch_server=held.batch_server.without_the_api_server())
    held.limit(3)
    held.start_program("--num_workers=3")
    held.wait_for_held(3, "worker-0", "worker-1", "worker-2")
    victim = process_with(held.marks("worker-1"))
    # A restarted server does not remember the changes since the master's last event.
    held.kubectl("create", "configmap", "newer")

    own_cluster.stop_api_server()
    try:
        victim.kill()
        held.limit(6)
        held.wait_for_held(6, "worker-0", "worker-2")
    finally:
        own_cluster.start_api_server()

    held.wait_for_held(6, "worker-3")
    held.delete_pod("worker-2")
    held.wait_for_held(6, "worker-4")
    assert "Listing Pod again: the watch is too far behind" in held.kubectl("logs", MASTER)
    assert held.ends_exactly() == [0, 0]
