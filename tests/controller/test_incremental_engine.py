"""An engine that looks at changes only does the same as one that sees the whole cluster for the first time."""

from __future__ import annotations

import random
from typing import Any

import pytest

from elasticdl.controller.engine import Engine
from elasticdl.controller.reconcile.actions import Action, DeletePod, StartJob, WriteDesired
from tests.controller.builders import NOW, Document, node, pod, record, report, training_job


class TwoEngines:
    """One engine is shown every change; for each comparison another one is shown all objects."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.engine = Engine()
        self.objects: dict[tuple[str, str], Document] = {}

    def show(self, *documents: Document) -> None:
        for document in documents:
            self.objects[document["kind"], document["metadata"]["name"]] = document
            self.engine.apply(document["kind"], document)

    def remove(self, *documents: Document) -> None:
        for document in documents:
            if self.objects.pop((document["kind"], document["metadata"]["name"]), None) is not None:
                self.engine.apply(document["kind"], document, gone=True)

    def of_kind(self, kind: str) -> list[Document]:
        return [document for (there, _), document in self.objects.items() if there == kind]

    def compare(self) -> dict[str, tuple[Action, ...]]:
        fresh = Engine()
        for document in self.objects.values():
            fresh.apply(document["kind"], document)
        step = self.engine.step(NOW)
        assert effects(step.actions) == effects(fresh.step(NOW).actions)
        return step.actions

    def change(self, number: int) -> None:
        """One of the things that happen in a cluster."""
        match self.chance.randrange(7):
            case 0 | 1:
                low = self.chance.randint(1, 2)
                self.show(training_job(f"job-{number}", low=low, high=low + self.chance.randint(0, 4)))
            case 2:
                self.show(node(f"m{number}", cpu=self.chance.choice(("2", "4", "8"))))
            case 3:
                self.show(foreign_pod(f"other-{number}", self.chance.choice(self.of_kind("Node"))))
            case 4:
                self.remove(*self.some("Pod", "other-"))
            case 5:
                for machine in self.some("Node", "m"):
                    self.show({**machine, "spec": {"unschedulable": self.chance.random() < 0.5}})
            case 6:
                for job in self.some("TrainingJob", "job-"):
                    self.remove(job, *self.parts_of(job["metadata"]["name"]))

    def some(self, kind: str, prefix: str) -> list[Document]:
        found = [each for each in self.of_kind(kind) if each["metadata"]["name"].startswith(prefix)]
        return [self.chance.choice(found)] if found else []

    def parts_of(self, job: str) -> list[Document]:
        return [
            document
            for document in (*self.of_kind("Pod"), *self.of_kind("ConfigMap"))
            if (document["metadata"].get("labels") or {}).get("elasticdl-job-name") == job
        ]

    def carry_out(self, actions: dict[str, tuple[Action, ...]]) -> None:
        """What is started runs where there happens to be a machine; nothing is resized."""
        for each in [action for found in actions.values() for action in found]:
            if isinstance(each, StartJob):
                workers = each.spec.nodes.num_workers
                self.show(record(each.spec, report=report(workers)), pod(each.spec, "master-0"))
                self.show(*(pod(each.spec, f"worker-{number}") for number in range(workers)))


def foreign_pod(name: str, machine: Document) -> Document:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"},
        "spec": {
            "nodeName": machine["metadata"]["name"],
            "containers": [{"name": "c", "resources": resources}],
        },
        "status": {"phase": "Running"},
    }


def effects(actions: dict[str, tuple[Action, ...]]) -> dict[str, list[Any]]:
    """Statuses aside: they have times."""
    found = {}
    for job, several in actions.items():
        parts: list[Any] = [each.spec for each in several if isinstance(each, StartJob)]
        parts += [each.desired for each in several if isinstance(each, WriteDesired)]
        parts += [each.name for each in several if isinstance(each, DeletePod)]
        if parts:
            found[job] = parts
    return found


@pytest.mark.parametrize("seed", range(5))
def test_changes_have_the_effects_of_the_whole(seed: int) -> None:
    cluster = TwoEngines(seed)
    cluster.show(node("m0", cpu="6"))
    starts = 0
    for number in range(40):
        cluster.change(number)
        actions = cluster.compare()
        starts += sum(isinstance(each, StartJob) for found in actions.values() for each in found)
        cluster.carry_out(actions)
    assert starts > 3
