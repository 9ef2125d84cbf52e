"""What TF_CONFIG says to whom."""

from __future__ import annotations

import json

from elasticdl.master.programs.launchers.launcher import SPARE_WORKERS, NodePlace, places
from elasticdl.master.programs.launchers.tensorflow import TensorflowLauncher

TARGETS = {"ps": 1, "chief": 1, "evaluator": 1, "worker": 2}
ADDRESSES = {role: [f"{role}:{n}" for n in range(count)] for role, count in places(TARGETS).items()}


def config(role: str, slot: int, **targets: int) -> dict[str, dict[str, object]]:
    place = NodePlace(role=role, slot=slot, addresses=ADDRESSES, targets={**TARGETS, **targets})
    environment = TensorflowLauncher().environment(place)
    assert environment.keys() == {"TF_CONFIG"}
    return json.loads(environment["TF_CONFIG"])  # type: ignore[no-any-return]


def test_tf_config_has_the_cluster_and_the_own_task() -> None:
    assert config("worker", 1) == {
        "cluster": {"chief": ["chief:0"], "worker": ["worker:0", "worker:1"], "ps": ["ps:0"]},
        "task": {"type": "worker", "index": 1},
    }


def test_evaluator_is_not_in_the_cluster() -> None:
    found = config("evaluator", 0)
    assert "evaluator" not in found["cluster"]
    assert found["task"] == {"type": "evaluator", "index": 0}


def test_parameter_servers_know_of_workers_that_may_come() -> None:
    assert len(config("ps", 0)["cluster"]["worker"]) == 2 + SPARE_WORKERS  # type: ignore[arg-type]


def test_a_worker_that_has_come_finds_itself_at_its_index() -> None:
    found = config("worker", 4, worker=5)
    assert found["cluster"]["worker"][4] == "worker:4"  # type: ignore[index]
