"""The CustomResourceDefinitions of TrainingJob, generated from the dataclasses of `resource` and `status`.

`python -m elasticdl.jobs.training_job.crd` prints `elasticdl/manifests/trainingjob-crd.yaml`. There are two: ours, and
the one with the group of PaddlePaddle EDL, whose documents run unchanged.

The schema is that of Kubernetes 1.20, so it has no rules between fields; `parsing` has them.

Unknown fields
    An API server either publishes the fields of an object, for `kubectl explain` and for kubectl's own validation, or
    keeps fields that it does not know (`x-kubernetes-preserve-unknown-fields`). Ours publishes them: kubectl refuses
    unknown fields by name, and `parsing` finds those that `kubectl apply` has written down. EDL's keeps them, because
    its documents have fields of several versions. `job`, and objects of Kubernetes' own such as volumes, are kept
    as they are in both.
"""

from __future__ import annotations

import dataclasses
import enum
import sys
import types
from collections.abc import Mapping
from typing import Any, Union, get_args, get_origin, get_type_hints

from elasticdl.jobs.audit import Audit
from elasticdl.jobs.json_codec import json_key
from elasticdl.jobs.training_job.fields import Field, FieldKind, fields_of
from elasticdl.jobs.training_job.resource import EDL_GROUP, GROUP, KIND, PLURAL, VERSION, TrainingJobSpec
from elasticdl.jobs.training_job.status import TrainingJobStatus

Schema = dict[str, Any]

_ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}
_SHORT_NAME = "tj"
_COLUMNS = (
    ("Phase", ".status.phase", "Where the job is in its life."),
    (
        "Trainers",
        ".status.summary.trainers",
        "Trainers that are ready, of those desired (minimum and maximum).",
    ),
    ("PServers", ".status.summary.parameterServers", "Parameter servers that are ready, of those desired."),
    ("Progress", ".status.summary.progress", "Samples trained, of those of all epochs."),
    ("Left", ".status.summary.timeLeft", "Time until the job ends, at its present speed."),
)
_STATUS_HELP = {
    "phase": "Where the job is in its life, and why (message).",
    "conditions": "What is true of the job, each with a reason in one word and the time of its last transition.",
    "trainer": "Trainers: ready, desired, and the range.",
    "pserver": "Parameter servers: ready, desired, and the range.",
    "progress": "Epochs, samples, speed and the time left.",
    "goodput": "The part of the job's life that trained samples that count, and where the rest went.",
    "decisions": "The last decisions of the planner about this job.",
    "audit": "The final account of every sample.",
    "observedGeneration": "The generation of the spec that this status is about.",
    "summary": "The columns of kubectl get.",
    "selector": "Label selector of the trainers, for HorizontalPodAutoscalers.",
}


def crd_documents() -> tuple[dict[str, Any], ...]:
    """Returns ours and EDL's."""
    return (
        _crd(GROUP, short_names=(_SHORT_NAME,), keeps_unknown=False),
        _crd(EDL_GROUP, short_names=(), keeps_unknown=True),
    )


def crd_yaml() -> str:
    """Returns the manifest."""
    import yaml

    head = "# Written by `python -m elasticdl.jobs.training_job.crd`.\n"
    documents = [
        yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=118)
        for document in crd_documents()
    ]
    return head + "---\n".join(documents)


def _crd(group: str, *, short_names: tuple[str, ...], keeps_unknown: bool) -> dict[str, Any]:
    names: dict[str, Any] = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": KIND.lower(),
    }
    if short_names:
        names["shortNames"] = list(short_names)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{group}", "labels": {"app": "elasticdl"}},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": _root(keeps_unknown=keeps_unknown)},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.trainer.replicas",
                            "statusReplicasPath": ".status.trainer.ready",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": [
                        *(
                            {"name": name, "type": "string", "jsonPath": path, "description": help_text}
                            for name, path, help_text in _COLUMNS
                        ),
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                }
            ],
        },
    }


def _root(*, keeps_unknown: bool) -> Schema:
    status = _of_type(TrainingJobStatus)
    status["properties"] |= {
        "version": {"type": "integer"},
        "summary": {"type": "object", "additionalProperties": {"type": "string"}},
    }
    for name, help_text in _STATUS_HELP.items():
        status["properties"][name]["description"] = help_text
    return {
        "type": "object",
        "description": "A training job whose size the cluster chooses between a minimum and a maximum.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {
                **_section(TrainingJobSpec, keeps_unknown=keeps_unknown),
                "description": "What to run, and between which sizes.",
            },
            "status": {**status, "description": "What the controller reports. Read-only for others."},
        },
    }


def _section(section: type[Any], *, keeps_unknown: bool) -> Schema:
    properties = {item.key: _field(item, keeps_unknown=keeps_unknown) for item in fields_of(section).values()}
    return {"type": "object", "properties": properties, **(_ANYTHING if keeps_unknown else {})}


def _field(item: Field, *, keeps_unknown: bool) -> Schema:
    found = {"description": item.help, **_kind(item, keeps_unknown=keeps_unknown)}
    if item.server_default is not None:
        found["default"] = item.server_default
    return found


def _kind(item: Field, *, keeps_unknown: bool) -> Schema:
    match item.kind:
        case FieldKind.TEXT:
            return {"type": "string"}
        case FieldKind.INTEGER:
            bounds = {"minimum": item.minimum, "maximum": item.maximum}
            return {"type": "integer", **{name: value for name, value in bounds.items() if value is not None}}
        case FieldKind.NUMBER:
            return {"type": "number"}
        case FieldKind.BOOLEAN:
            return {"type": "boolean"}
        case FieldKind.OBJECTS:
            return {"type": "array", "items": {"type": "object", **_ANYTHING}}
        case FieldKind.TEXTS:
            return {"type": "object", "additionalProperties": {"type": "string"}}
        case FieldKind.QUANTITIES:
            # A quantity may be written as 1, "500m" or 0.5.
            return {"type": "object", "additionalProperties": dict(_ANYTHING)}
        case FieldKind.JOB:
            return {"type": "object", **_ANYTHING}
        case FieldKind.SECTION:
            assert item.section is not None
            return _section(item.section, keeps_unknown=keeps_unknown)


def _of_type(hint: Any) -> Schema:
    """Returns the schema of what `json_codec` writes for a type."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _of_type(next(item for item in arguments if item is not type(None)))
    if hint is Audit:
        return {"type": "object", **_ANYTHING}
    if origin is tuple:
        return {"type": "array", "items": _of_type(arguments[0])}
    if origin is not None and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _of_type(arguments[1])}
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        return {
            "type": "object",
            "properties": {json_key(item): _of_type(hints[item.name]) for item in dataclasses.fields(hint)},
        }
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"type": "string"}
    return {"type": {str: "string", int: "integer", float: "number", bool: "boolean"}[hint]}


if __name__ == "__main__":
    sys.stdout.write(crd_yaml())
