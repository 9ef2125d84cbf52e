"""The CustomResourceDefinition of TrainingJob, derived from the fields of its spec.

`python -m elasticdl.jobs.training_job.definition` prints elasticdl/manifests/trainingjob-crd.yaml. Unknown fields are
kept: a misspelled one must reach the controller, which names the nearest valid field.
"""

from __future__ import annotations

from typing import Any

from elasticdl.jobs.training_job.fields import Field, FieldKind, fields_of
from elasticdl.jobs.training_job.resource import EDL_GROUP, GROUP, KIND, PLURAL, VERSION, TrainingJobSpec

_COLUMNS = (
    ("Phase", "string", ".status.phase", 0),
    ("Trainers", "string", ".status.summary.trainers", 0),
    ("PS", "string", ".status.summary.parameterServers", 0),
    ("Progress", "string", ".status.summary.progress", 0),
    ("Left", "string", ".status.summary.timeLeft", 0),
    ("Age", "date", ".metadata.creationTimestamp", 0),
    ("Message", "string", ".status.message", 1),
)
_HEADER = """\
# The resource TrainingJob: `kubectl create -f trainingjob-crd.yaml`. The second definition is for documents that were
# written for PaddlePaddle EDL. Made by `python -m elasticdl.jobs.training_job.definition`.
"""


def definitions() -> tuple[dict[str, Any], ...]:
    """Returns the definitions of both API groups."""
    return _definition(GROUP, short_names=["tj"]), _definition(EDL_GROUP, short_names=[])


def text() -> str:
    """Returns the manifest."""
    import yaml

    return _HEADER + "---\n".join(
        yaml.safe_dump(each, sort_keys=False, width=110, allow_unicode=True) for each in definitions()
    )


def _definition(group: str, *, short_names: list[str]) -> dict[str, Any]:
    names: dict[str, Any] = {
        "kind": KIND,
        "listKind": f"{KIND}List",
        "plural": PLURAL,
        "singular": "trainingjob",
    }
    if short_names:
        names["shortNames"] = short_names
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
                    "schema": {"openAPIV3Schema": _schema()},
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.trainer.replicas",
                            "statusReplicasPath": ".status.trainer.ready",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "additionalPrinterColumns": [
                        {
                            "name": name,
                            "type": kind,
                            "jsonPath": path,
                            **({"priority": level} if level else {}),
                        }
                        for name, kind, path, level in _COLUMNS
                    ],
                }
            ],
        },
    }


def _schema() -> dict[str, Any]:
    role = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"ready": {"type": "integer"}, "desired": {"type": "integer"}},
    }
    return {
        "type": "object",
        "description": "A job whose size the cluster may choose between a minimum and a maximum.",
        "properties": {
            "spec": _section(TrainingJobSpec, "What to run, and between which sizes."),
            "status": {
                "type": "object",
                "description": "What the controller reports.",
                "x-kubernetes-preserve-unknown-fields": True,
                "properties": {
                    "phase": {"type": "string"},
                    "message": {"type": "string"},
                    "selector": {"type": "string"},
                    "trainer": role,
                    "pserver": role,
                },
            },
        },
    }


def _section(section: type[Any], description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {item.key: _field(item) for item in fields_of(section).values()},
    }


def _field(item: Field) -> dict[str, Any]:
    if item.section is not None:
        schema = _section(item.section, item.help)
    else:
        schema = {**_types(item.kind), "description": item.help}
        if item.minimum is not None:
            schema["minimum"] = item.minimum
        if item.maximum is not None:
            schema["maximum"] = item.maximum
    if item.server_default is not None:
        schema["default"] = item.server_default
    return schema


def _types(kind: FieldKind) -> dict[str, Any]:
    if kind is FieldKind.OBJECTS:
        return {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    if kind is FieldKind.TEXTS:
        return {"type": "object", "additionalProperties": {"type": "string"}}
    if kind is FieldKind.QUANTITIES:
        return {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}
    if kind is FieldKind.JOB:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    plain = {
        FieldKind.TEXT: "string",
        FieldKind.INTEGER: "integer",
        FieldKind.NUMBER: "number",
        FieldKind.BOOLEAN: "boolean",
    }
    return {"type": plain[kind]}


if __name__ == "__main__":
    print(text(), end="")
