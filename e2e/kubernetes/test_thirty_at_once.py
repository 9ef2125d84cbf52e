"""Many pods are made together, by an API server that takes only a few requests of this master at a time; then all of
them are deleted together, and replaced, and do what there is to do. (That calls run concurrently is shown by
tests/master/kubernetes/test_pods_together.py.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.conftest import wait_until
from e2e.kubernetes.conftest import Kubectl
from e2e.kubernetes.held import HeldJob

MANY = 30
_FLOW = "flowcontrol.apiserver.k8s.io"


@pytest.fixture
def throttled(kubectl: Kubectl) -> Iterator[None]:
    """Limits the masters of this namespace to the server's smallest rate; it refuses what exceeds it (429)."""
    name = kubectl.namespace
    version = next(each for each in kubectl("api-versions").split() if each.startswith(_FLOW))
    shares = (
        "assuredConcurrencyShares" if version.endswith(("beta1", "beta2")) else "nominalConcurrencyShares"
    )
    account = {"kind": "ServiceAccount", "serviceAccount": {"namespace": name, "name": "elasticdl"}}
    rule = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"]}
    documents: dict[str, Any] = {
        "PriorityLevelConfiguration": {
            "type": "Limited",
            "limited": {shares: 1, "limitResponse": {"type": "Reject"}},
        },
        "FlowSchema": {
            "priorityLevelConfiguration": {"name": name},
            # Before the ones that match all accounts.
            "matchingPrecedence": 500,
            "rules": [{"subjects": [account], "resourceRules": [rule]}],
        },
    }
    for kind, spec in documents.items():
        text = json.dumps({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})
        kubectl("create", "--filename=-", text=text)
    yield
    kubectl("delete", "flowschema,prioritylevelconfiguration", name)


@pytest.mark.usefixtures("throttled")
def test_thirty_killed_workers_are_replaced(held: HeldJob) -> None:
    # Until all have come there is something to do for each.
    held.limit(1)
    held.start_program(f"--num_workers={MANY}")
    before = {f"worker-{number}" for number in range(MANY)}
    wait_until(lambda: set(held.pods()) == before, f"there are {MANY} pods")
    held.wait_for_running(*before)
    held.kubectl(
        "delete", "pods", "--selector=elasticdl-replica-type=worker", "--grace-period=1", "--wait=false"
    )
    after = {f"worker-{number}" for number in range(MANY, 2 * MANY)}
    wait_until(lambda: set(held.pods()) == after, "each has a replacement")
    assert refused(held.kubectl) > 0
    assert held.ends_exactly() == [0, 0]


def refused(kubectl: Kubectl) -> float:
    """As the server counts them."""
    name = "apiserver_flowcontrol_rejected_requests_total"
    counts = re.findall(
        rf'^{name}{{[^}}]*"{kubectl.namespace}"[^}}]*}} (\S+)$',
        kubectl("get", "--raw", "/metrics"),
        re.MULTILINE,
    )
    return sum(map(float, counts))
