"""The manifest of the CustomResourceDefinition is what the fields of the resource say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elasticdl.jobs.training_job.definition import definitions, text

MANIFEST = Path(__file__).parents[2] / "elasticdl/manifests/trainingjob-crd.yaml"


def test_manifest_is_up_to_date() -> None:
    assert MANIFEST.read_text(encoding="utf-8") == text()


def test_every_field_is_described() -> None:
    def walk(schema: dict[str, Any], path: str) -> None:
        for key, part in schema.get("properties", {}).items():
            assert part.get("description"), f"{path}.{key}"
            walk(part, f"{path}.{key}")

    for definition in definitions():
        version = definition["spec"]["versions"][0]
        walk(version["schema"]["openAPIV3Schema"]["properties"]["spec"], "spec")
