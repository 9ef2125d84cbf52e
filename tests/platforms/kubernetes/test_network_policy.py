"""Pods of a job accept connections from pods of that job only: no other job's, no other pod's."""

from __future__ import annotations

from typing import Any

from e2e.cluster.policies import who_reaches
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes.manifests import network_policy
from elasticdl.platforms.kubernetes.pods.manifest import master_pod, node_pod
from elasticdl.platforms.platform import NodeRequest


def job(name: str) -> JobSpec:
    return JobSpec.build(job_name=name, image_name="i", model_zoo="z", model_def="a.b.c", training_data="/d")


def pods(spec: JobSpec, network: str) -> list[dict[str, Any]]:
    """Its master, a server and a worker, at .0, .1 and .2 of a network."""
    others = [
        node_pod(spec, NodeRequest(name=name, role=name.rpartition("-")[0], command=("python3",)))
        for name in ("ps-0", "worker-3")
    ]
    made = [master_pod(spec), *others]
    return [{**pod, "status": {"podIP": f"{network}.{number}"}} for number, pod in enumerate(made)]


def test_two_jobs_and_a_stranger() -> None:
    one, other = job("one"), job("other")
    stranger = {"metadata": {"labels": {"app": "elasticdl"}}, "status": {"podIP": "10.9.9.9"}}
    not_begun = {**pods(one, "")[0], "status": {}}
    everybody = [*pods(one, "10.1.1"), *pods(other, "10.2.2"), stranger, not_begun]
    ours = {f"10.1.1.{number}" for number in range(3)}
    assert who_reaches(everybody, [network_policy(one)]) == dict.fromkeys(ours, ours)
    theirs = {f"10.2.2.{number}" for number in range(3)}
    assert who_reaches(everybody, [network_policy(one), network_policy(other)]) == {
        **dict.fromkeys(ours, ours),
        **dict.fromkeys(theirs, theirs),
    }
