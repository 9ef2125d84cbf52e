"""The environment of nodes has what is known when they start, not only what was known when the master was made."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.lifecycle.roster import Node
from elasticdl.master.nodes.node_requests import NodeRequests


@pytest.mark.parametrize(
    "flags",
    [{"job_command": "true"}, {"model_zoo": "z", "model_def": "a.b.c", "training_data": "/d"}],
    ids=["command", "definition"],
)
def test_address_that_is_added_before_the_start_reaches_the_node(flags: dict[str, Any]) -> None:
    environment: dict[str, str] = {}
    requests = NodeRequests(JobSpec.build(job_name="j", **flags), environment=environment)
    environment["MASTER_ADDR"] = "127.0.0.1:1"
    node = Node(name="worker-0", role="worker", number=0, slot=0)
    request = requests.build(node, addresses={}, targets={"worker": 1})
    assert request.environment["MASTER_ADDR"] == "127.0.0.1:1"
