"""TrainingJob documents that tests start from."""

from __future__ import annotations

import copy
from typing import Any

_EDL: dict[str, Any] = {
    "apiVersion": "elasticdl.org/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "example", "namespace": "team", "uid": "u-1", "generation": 3},
    "spec": {
        "image": "registry/train:1",
        "port": 7164,
        "ports_num": 1,
        "ports_num_for_sparse": 1,
        "fault_tolerant": True,
        "passes": 10,
        "trainer": {
            "entrypoint": "python train_ft.py",
            "workspace": "/work",
            "min-instance": 2,
            "max-instance": 6,
            "resources": {
                "requests": {"cpu": "500m", "memory": "600Mi"},
                "limits": {"cpu": 1, "memory": "1Gi"},
            },
        },
        "pserver": {
            "min-instance": 2,
            "max-instance": 2,
            "resources": {"requests": {"cpu": "500m", "memory": "600Mi"}},
        },
        "master": {"resources": {"requests": {"cpu": "250m", "memory": "256Mi"}}},
    },
}
_JOB: dict[str, Any] = {
    "apiVersion": "elasticdl.org/v1",
    "kind": "TrainingJob",
    "metadata": {"name": "mnist", "namespace": "team"},
    "spec": {
        "job": {
            "model": {"model_zoo": "/model_zoo", "model_def": "mnist.mnist.custom_model"},
            "data": {"training_data": "/data/train"},
            "nodes": {
                "min_workers": 2,
                "max_workers": 10,
                "min_ps": 1,
                "max_ps": 3,
                "worker_resource_request": {"cpu": "1", "memory": "1Gi"},
                "ps_resource_request": {"cpu": "1", "memory": "1Gi"},
            },
            "cluster": {"image_name": "registry/mnist:1"},
        }
    },
}


def edl_document(**spec: Any) -> dict[str, Any]:
    """An image with an entrypoint; keyword arguments replace fields of the spec, None removes them."""
    return _changed(_EDL, spec)


def job_document(**spec: Any) -> dict[str, Any]:
    """A whole JobSpec."""
    return _changed(_JOB, spec)


def _changed(document: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    result = copy.deepcopy(document)
    for name, value in spec.items():
        if value is None:
            result["spec"].pop(name, None)
        else:
            result["spec"][name] = value
    return result
