"""A job gets the variables of its own framework, and of no other."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.lifecycle.roster import Node
from elasticdl.master.programs.node_environment import IN_PODS
from elasticdl.master.programs.program_nodes import ProgramNodes

TARGETS = {"ps": 1, "chief": 0, "evaluator": 0, "worker": 2}
ADDRESSES = {"ps": ["h:1"], "chief": [], "evaluator": [], "worker": ["h:3", "h:4"]}


@pytest.mark.parametrize(
    ("command", "flags", "framework"),
    [
        ("python train.py", {}, ""),
        ("python train.py", {"need_tf_config": True}, "TF_"),
        ("python train.py", {"need_tf_config": True, "num_ps": 1}, "TF_"),
        ("python -m paddle_loop", {"need_tf_config": True}, "TF_"),
        ("python train.py", {"num_ps": 1}, "PADDLE_"),
        ("python -m model_zoo.iris.paddle_loop", {}, "PADDLE_"),
        ("python -m Paddle.train", {}, "PADDLE_"),
    ],
)
def test_node_gets_variables_of_its_framework_only(
    command: str, flags: dict[str, Any], framework: str
) -> None:
    spec = JobSpec.build(name_suffix="x", job_command=command, num_workers=2, **flags)
    made = ProgramNodes(spec, environment={}, surroundings=IN_PODS)
    node = Node(name="worker-3", role="worker", number=3, slot=1)
    environment = made.request(node, addresses=ADDRESSES, targets=TARGETS).environment
    found = {prefix for prefix in ("TF_", "PADDLE_") if any(name.startswith(prefix) for name in environment)}
    assert found == ({framework} if framework else set())
    assert ("TRAINING_ROLE" in environment) is (framework == "PADDLE_")
