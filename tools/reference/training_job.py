"""docs/reference/training-job.md: the fields of TrainingJob, from its CustomResourceDefinition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import yaml

from tools.reference.markdown import code, opening, table

Schema = Mapping[str, Any]
_TEXT = """\
A TrainingJob is a job whose size the cluster chooses between a minimum and a maximum:
[Elastic clusters](../elastic-clusters.md). `kubectl explain tj.spec` prints the same on a cluster. The group
`paddlepaddle.org` has the same fields, so that documents of PaddlePaddle EDL run unchanged."""


def page() -> str:
    text = (files("elasticdl") / "manifests/trainingjob-crd.yaml").read_text(encoding="utf-8")
    crd = next(
        each for each in yaml.safe_load_all(text) if each["metadata"]["name"] == "trainingjobs.elasticdl.org"
    )
    version = crd["spec"]["versions"][0]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    lines = opening("TrainingJob", "elasticdl/jobs/training_job", _TEXT)
    lines += [
        f"API version `{crd['spec']['group']}/{version['name']}`, kind `{crd['spec']['names']['kind']}`, short name "
        f"`{crd['spec']['names']['shortNames'][0]}`.",
        "",
    ]
    for section, title in (("spec", "Spec"), ("status", "Status")):
        lines += [f"## {title}", ""]
        rows = ((code(name), kind, text) for name, kind, text in _fields(properties[section], ""))
        lines += table(["field", "type", "meaning"], rows)
    lines += ["## Columns of `kubectl get tj`", ""]
    columns = version.get("additionalPrinterColumns", ())
    rows = ((each["name"], code(each["jsonPath"]), each.get("description", "")) for each in columns)
    return "\n".join([*lines, *table(["column", "field", "meaning"], rows)])


def _fields(schema: Schema, path: str) -> Iterator[tuple[str, str, str]]:
    for name, field in (schema.get("properties") or {}).items():
        place = f"{path}{name}"
        yield place, _type_of(field), field.get("description", "")
        yield from _fields(field, f"{place}.")
        if field.get("type") == "array":
            yield from _fields(field["items"], f"{place}[].")


def _type_of(field: Schema) -> str:
    kind = str(
        field.get("type") or ("integer or string" if field.get("x-kubernetes-int-or-string") else "any")
    )
    if kind == "array":
        kind = f"list of {_type_of(field['items'])}"
    if "enum" in field:
        kind = ", ".join(code(str(each)) for each in field["enum"])
    bounds = [
        f"{word} {field[key]}" for key, word in (("minimum", "from"), ("maximum", "to")) if key in field
    ]
    return " ".join([kind, *bounds])
