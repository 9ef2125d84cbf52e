"""Pods of a job accept connections from its own pods only, and connect to these, to DNS and to what --egress names."""

from __future__ import annotations

import json
from typing import Any

import pytest

from e2e.cluster.policies import Destination, what_is_reached, who_reaches
from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes.network_policies import network_policies
from elasticdl.platforms.kubernetes.pods.manifest import master_pod, node_pod
from elasticdl.platforms.platform import NodeRequest

DNS = {Destination(port=53, protocol="UDP"), Destination(port=53, protocol="TCP")}
API_SERVERS = {Destination(port=port, protocol="TCP") for port in (443, 6443, 8443, 16443)}


def job(name: str, **flags: Any) -> JobSpec:
    given = {"image_name": "i", "model_zoo": "z", "model_def": "a.b.c", "training_data": "/d", **flags}
    return JobSpec.build(job_name=name, **given)


def pods(spec: JobSpec, network: str) -> list[dict[str, Any]]:
    """Its master, a server and a worker, at .0, .1 and .2 of a network."""
    others = [
        node_pod(spec, NodeRequest(name=name, role=name.rpartition("-")[0], command=("python3",)))
        for name in ("ps-0", "worker-3")
    ]
    made = [master_pod(spec), *others]
    return [{**pod, "status": {"podIP": f"{network}.{number}"}} for number, pod in enumerate(made)]


def own(network: str) -> set[Destination]:
    return {Destination(network=f"{network}.{number}") for number in range(3)}


def test_two_jobs_and_a_stranger() -> None:
    one, other = job("one"), job("other")
    stranger = {"metadata": {"labels": {"app": "elasticdl"}}, "status": {"podIP": "10.9.9.9"}}
    not_begun = {**pods(one, "")[0], "status": {}}
    all_pods = [*pods(one, "10.1.1"), *pods(other, "10.2.2"), stranger, not_begun]
    ours = {f"10.1.1.{number}" for number in range(3)}
    assert who_reaches(all_pods, network_policies(one)) == dict.fromkeys(ours, ours)
    theirs = {f"10.2.2.{number}" for number in range(3)}
    assert who_reaches(all_pods, [*network_policies(one), *network_policies(other)]) == {
        **dict.fromkeys(ours, ours),
        **dict.fromkeys(theirs, theirs),
    }


def test_only_the_master_reaches_api_servers() -> None:
    spec = job("one")
    inside = own("10.1.1") | DNS
    assert what_is_reached(pods(spec, "10.1.1"), network_policies(spec)) == {
        "10.1.1.0": inside | API_SERVERS,
        "10.1.1.1": inside,
        "10.1.1.2": inside,
    }


def test_worker_with_an_account_of_the_cluster_reaches_api_servers() -> None:
    fields = {"worker_spec": {"serviceAccountName": "reader", "automountServiceAccountToken": True}}
    spec = job("one", cluster_spec_json=json.dumps(fields))
    reached = what_is_reached(pods(spec, "10.1.1"), network_policies(spec))
    assert [reached[f"10.1.1.{number}"] >= API_SERVERS for number in range(3)] == [True, False, True]


@pytest.mark.parametrize(
    ("egress", "destinations"),
    [
        ("10.8.0.0/16", [Destination(network="10.8.0.0/16")]),
        ("10.8.0.1:9000", [Destination(network="10.8.0.1/32", port=9000, protocol="TCP")]),
        ("[fd00::/8]:443", [Destination(network="fd00::/8", port=443, protocol="TCP")]),
        ("fd00::1", [Destination(network="fd00::1/128")]),
        (["10.8.0.1", "any"], [Destination(network="10.8.0.1/32"), Destination()]),
    ],
)
def test_data_sources_are_named(egress: object, destinations: list[Destination]) -> None:
    spec = job("one", egress=egress)
    reached = what_is_reached(pods(spec, "10.1.1"), network_policies(spec))
    assert reached["10.1.1.2"] == own("10.1.1") | DNS | {*destinations}


@pytest.mark.parametrize(
    ("egress", "problem"),
    [
        ("data.example.com", "host names are not possible"),
        ("10.8.0.1/16", "has host bits set"),
        ("10.8.0.1:0", "'0' is not a port"),
        ("10.8.0.1:65536", "'65536' is not a port"),
        ("[fd00::1]:", "'' is not a port"),
        ("all", "is neither any nor a network"),
    ],
)
def test_target_that_is_none(egress: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        job("one", egress=egress)
