"""The controller outside of the cluster: jobs grow, shrink for each other, survive and end with exact accounts.

Trainers need a device that only these tests know, so that it is clear how many fit whatever else runs meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import wait_until
from e2e.kubernetes.conftest import Kubectl, own_namespace
from e2e.kubernetes.devices import offered
from e2e.kubernetes.training_jobs import ControllerProcess, TrainingJobs, install_definitions, only_controller

DEVICE, DEVICES = "elasticdl.test/place", 6
NEEDS = {DEVICE: "1"}

Start = Callable[[str], ControllerProcess]


@pytest.fixture
def controller_turn(room: None) -> Iterator[None]:
    """No other test runs a controller until this one ends."""
    with only_controller():
        yield


@pytest.fixture
def start(kubectl: Kubectl, controller_turn: None, tmp_path: Path) -> Iterator[Start]:
    """Starts a controller of a name; all of them end with the test."""
    started: list[ControllerProcess] = []

    def begin(name: str) -> ControllerProcess:
        started.append(ControllerProcess(name, folder=tmp_path, namespace=kubectl.namespace))
        return started[-1]

    with offered(kubectl, DEVICE, DEVICES):
        install_definitions()
        yield begin
        for each in started:
            each.kill()
            print(f"--- {each.name}\n{each.log}")
            assert "Traceback" not in each.log


@pytest.fixture
def jobs(kubectl: Kubectl) -> TrainingJobs:
    return TrainingJobs.prepared(kubectl, needs=NEEDS)


def master(name: str) -> str:
    return f"elasticdl-{name}-master"


def test_two_jobs_share_the_cluster_to_their_ends(start: Start, jobs: TrainingJobs) -> None:
    kubectl = jobs.kubectl
    jobs.slow_down()
    leader, standby = start("a"), start("b")
    leader.wait_for_line("Cluster resources: NodeCount:")

    # Alone, the first grows to its maximum.
    jobs.create("first", 2, DEVICES)
    jobs.wait_for_size(first=DEVICES)
    assert (
        kubectl.get("configmap", "elasticdl-first")["metadata"]["ownerReferences"][0]["kind"] == "TrainingJob"
    )
    assert kubectl.phases()[master("first")] == "Running"

    # It shrinks for a second. Who gets how many depends on what has been measured by then.
    jobs.create("second", 2, DEVICES)
    jobs.wait_for_total(DEVICES, "first", "second")
    jobs.wait_for("first", lambda status: status["phase"] == "Running", "runs")
    header, row = kubectl("get", "tj", "first").splitlines()
    assert header.split() == ["NAME", "PHASE", "TRAINERS", "PSERVERS", "PROGRESS", "LEFT", "AGE"]
    assert row.split()[:2] == ["first", "Running"]
    assert row.split()[3] == f"(2–{DEVICES})"
    reasons = [event.partition(":")[0] for event in jobs.events("first")]
    assert reasons[0] == "Admit"
    assert "Shrink" in reasons
    for kind, value in (("Valid", "True"), ("Admitted", "True"), ("Ready", "True"), ("Stalled", "False")):
        assert jobs.condition("first", kind)["status"] == value, kind
    kinds = [decision["kind"] for decision in jobs.status("first")["decisions"]]
    assert "Shrink" in kinds

    # A user pins a size, and releases it again. The other job takes what is left.
    jobs.scale("first", 2)
    jobs.wait_for_size(first=2, second=DEVICES - 2)
    jobs.scale("first", 0)

    # The leader is killed; while none leads, the master of a job is lost.
    which = {"a": leader, "b": standby}
    holder = kubectl("get", "lease", "training-job-controller", "--output=jsonpath={.spec.holderIdentity}")
    before = jobs.status("second")["progress"]["samplesDone"]
    which.pop(holder).kill()
    kubectl("delete", "pod", master("second"), "--wait=false")
    (other,) = which.values()
    other.wait_for_line("Leading as")
    jobs.wait_for("second", lambda status: status["restarts"] > 0, "has a new master")
    jobs.wait_for(
        "second", lambda status: status["progress"]["samplesDone"] > before, "goes on from where it was"
    )
    # With none left, jobs go on without a controller; a new one takes over what there is.
    other.kill()
    jobs.release()
    kubectl.wait_for_phase(master("first"), "Succeeded")
    start("c").wait_for_line("Leading as")
    for name in ("first", "second"):
        jobs.ends_exactly(name)
        assert jobs.condition(name, "Finished")["reason"] == "Succeeded"
        jobs.delete(name)
    assert kubectl("get", "tj") == ""


def test_broken_jobs_are_reported_and_block_no_others(start: Start, jobs: TrainingJobs) -> None:
    kubectl = jobs.kubectl
    controller = start("only")
    jobs.slow_down()
    jobs.create("image-missing", 1, 1, image="no-such-image:1")
    lost = {"name": "lost", "configMap": {"name": "no-such-map"}}
    mount = {"name": "lost", "mountPath": "/lost"}
    missing = jobs.document("volume-missing", 1, 1, volumes=[lost], volumeMounts=[mount])
    # The devices are for the others.
    del missing["spec"]["trainer"]["resources"]["requests"][DEVICE]
    jobs.apply(missing)
    jobs.create("too-large", DEVICES + 1, DEVICES + 2)
    jobs.create("suspended", 1, 1, suspend=True)
    wrong = jobs.document("wrong", 3, 2)
    wrong["spec"]["trainer"]["resources"]["requests"]["cpu"] = "a lot"
    jobs.apply(wrong)
    with own_namespace() as elsewhere:
        others = TrainingJobs.prepared(elsewhere, batch_server=jobs.batch_server, needs=NEEDS)
        jobs.create("same", 1, 2)
        others.create("same", 2, 2)
        jobs.wait_for_size(same=2)
        others.wait_for_size(same=2)

        for name, kind, value, reason in (
            ("image-missing", "Stalled", "True", "ImageMissing"),
            ("volume-missing", "Stalled", "True", "VolumeNotMounted"),
            ("too-large", "Admitted", "False", "DoesNotFit"),
            ("suspended", "Suspended", "True", "Suspended"),
            ("wrong", "Valid", "False", "InvalidSpec"),
        ):
            jobs.wait_for_condition(name, kind, value, reason)
            if name != "suspended":
                jobs.wait_for_event(name, reason)
        phases = {each["metadata"]["name"]: each["status"]["phase"] for each in listed(kubectl)}
        assert phases == {
            "image-missing": "Starting",
            "same": "Running",
            "suspended": "Suspended",
            "too-large": "Pending",
            "volume-missing": "Starting",
            "wrong": "Invalid",
        }
        message = jobs.condition("wrong", "Valid")["message"]
        assert "spec.trainer.min-instance: 3 is more than max-instance, 2." in message
        assert "spec.trainer.resources.requests.cpu" in message

        # What is edited until it is right, runs; what is suspended while it runs, goes on later where it was.
        jobs.create("wrong", 1, 1)
        jobs.wait_for(
            "wrong", lambda status: (status.get("progress") or {}).get("samplesDone"), "has trained samples"
        )
        kubectl("patch", "tj", "wrong", "--type=merge", "--patch", json.dumps({"spec": {"suspend": True}}))
        wait_until(lambda: not kubectl.phases("elasticdl-job-name=wrong"), "its pods are gone")
        jobs.wait_for_phase("wrong", "Suspended")
        done = jobs.status("wrong")["progress"]["samplesDone"]
        kubectl("patch", "tj", "wrong", "--type=merge", "--patch", json.dumps({"spec": {"suspend": False}}))
        jobs.release()
        assert done > 0
        for each, name in ((jobs, "wrong"), (jobs, "same"), (others, "same")):
            each.ends_exactly(name)
        others.delete("same")
    for name in ("image-missing", "volume-missing", "too-large", "suspended", "wrong", "same"):
        jobs.delete(name)
    assert controller.stop() == 0


def listed(kubectl: Kubectl) -> list[dict[str, Any]]:
    found = json.loads(kubectl("get", "tj", "--output=json"))
    return list(found["items"])
