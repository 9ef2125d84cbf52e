"""The manifest of the CustomResourceDefinitions is what the dataclasses say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

import elasticdl
from elasticdl.jobs.training_job.crd import crd_documents, crd_yaml

_MANIFEST = Path(elasticdl.__file__).parent / "manifests" / "trainingjob-crd.yaml"


def schema_of(document: dict[str, Any]) -> dict[str, Any]:
    (version,) = document["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def test_manifest_is_the_generated_one() -> None:
    assert _MANIFEST.read_text() == crd_yaml(), "run python -m elasticdl.jobs.training_job.crd"
    assert list(yaml.safe_load_all(_MANIFEST.read_text())) == list(crd_documents())


def test_every_field_has_a_description() -> None:
    def check(schema: dict[str, Any], path: str) -> None:
        assert schema.get("description"), path
        for name, part in schema.get("properties", {}).items():
            check(part, f"{path}.{name}")

    for document in crd_documents():
        check(schema_of(document), "spec")


def test_only_the_group_of_edl_keeps_unknown_fields() -> None:
    ours, edl = (schema_of(document) for document in crd_documents())
    assert "x-kubernetes-preserve-unknown-fields" not in ours
    assert edl["x-kubernetes-preserve-unknown-fields"] is True
    assert ours["properties"]["job"]["x-kubernetes-preserve-unknown-fields"] is True
