"""A program whose pod is deleted gets notice: it does what it has begun, reports it, and ends by itself. One that is
stopped gets its signal, and then all of its grace.

The first job comes from a file that `elasticdl train` has written.
"""

from __future__ import annotations

import json

import pytest

from e2e.conftest import wait_until
from e2e.kubernetes.conftest import machines
from e2e.kubernetes.held import HeldJob
from e2e.kubernetes.host_access import host_access

# Takes most of its grace to end.
SAVES = """
import pathlib, signal, sys, time
def save(*_):
    time.sleep(7)
    pathlib.Path("/kept/saved").touch()
    sys.exit()
signal.signal(signal.SIGTERM, save)
pathlib.Path("/kept/ready").touch()
while True:
    time.sleep(0.1)
"""


@pytest.mark.parametrize("command", ["python3 /saves/saves.py", "cd /saves && python3 saves.py"])
def test_a_program_that_is_stopped_has_its_whole_grace(held: HeldJob, command: str) -> None:
    held.kubectl("create", "configmap", "saves", f"--from-literal=saves.py={SAVES}")
    with host_access(held.kubectl, machines(held.kubectl)[0]) as machine:
        held.start_program(
            "--num_workers=1",
            f"--job_command={command}",
            f"--cluster_spec_json={json.dumps({'worker_spec': machine.here})}",
            volumes=f"config_map=saves,mount_path=/saves;host_path={machine.folder},mount_path=/kept",
        )
        wait_until(lambda: "ready" in machine.sh("ls"), "the program runs")
        held.elasticdl.jobs("stop", "job")
        wait_until(lambda: "saved" in machine.sh("ls"), "it has done what it does at its end")


@pytest.mark.parametrize(
    "flags", [(), ("--need_tf_config=true", "--num_chief=0")], ids=["plain", "addressed"]
)
def test_program_of_deleted_pod_finishes_its_shard_and_exits(held: HeldJob, flags: tuple[str, ...]) -> None:
    """The replacement starts at once or, if its place has an address, when the program has ended."""
    held.limit(3)
    held.apply_program("--num_workers=2", *flags)
    held.wait_for_held(3, "worker-0", "worker-1")
    held.delete_pod("worker-0")
    held.wait_for_notice("worker-0")
    held.limit(1000, "worker-0")
    wait_until(lambda: held.has_ended("worker-0"), "it comes to its own end")
    # The other one is held still: what the one that left had begun is done, by itself.
    held.wait_for_done(70)
    held.wait_for_held(3, "worker-1", "worker-2")
    assert held.ends_exactly() == [0, 0]
