"""Programs whose nodes find each other by TF_CONFIG: each address is one that its node can listen at."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e2e.ssh.machines import SshHosts

PROGRAM = """
import json, os, socket, sys

config = json.loads(os.environ["TF_CONFIG"])
task = config["task"]
host, port = config["cluster"][task["type"]][task["index"]].rsplit(":", 1)
with socket.create_server((host, int(port))):
    with open(os.path.join(sys.argv[1], f"{task['type']}-{task['index']}"), "w") as file:
        json.dump(config["cluster"], file)
"""


def test_nodes_of_an_estimator_program_have_addresses_on_their_hosts(
    start_job: Callable[..., Any], hosts: SshHosts, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "seen").mkdir()
    job = start_job(
        "train",
        f"--job_command=python {tmp_path}/program.py {tmp_path}/seen",
        "--need_tf_config",
        "--num_workers=2",
        "--num_ps=2",
        "--job_name=addressed",
        "--hosts=first,second",
        f"--ssh_config={hosts.config}",
    )
    assert job.wait() == 0, job.output + job.logs()
    seen = {path.name: json.loads(path.read_text()) for path in (tmp_path / "seen").iterdir()}
    assert {"chief-0", "worker-0", "worker-1"} <= seen.keys()
    addresses = [address for places in seen["chief-0"].values() for address in places]
    assert len({*addresses}) == len(addresses) == 5
    placements = [
        json.loads(line) for line in (job.folder / "hosts/placements.jsonl").read_text().splitlines()
    ]
    assert {entry["node"]: entry["host"] for entry in placements if entry["role"] == "worker"} == {
        "worker-0": "first",
        "worker-1": "second",
    }
