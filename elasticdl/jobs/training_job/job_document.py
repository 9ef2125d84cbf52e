"""The `job` of a TrainingJob: a JobSpec as a nested document instead of a YAML file.

It is read by the code that reads job files, so that a cluster and a command line accept the same. Only the places of
problems are translated: a line of a file becomes the path of a field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.flags.pairs import BadValue, parse_pairs
from elasticdl.jobs.sections.env_secrets import references
from elasticdl.jobs.spec import JobSpec, from_yaml, to_yaml

_SOURCE = "spec.job"
# "spec.job:1: nodes.num_workers: ..." and "spec.job:1: unknown key nodes.worker. Did you mean ...?"
_PLACE = re.compile(rf"{re.escape(_SOURCE)}:\d+: ")
_FIELD = re.compile(r"([a-z_]+(?:\.[A-Za-z0-9_-]+)*): (.*)", re.DOTALL)
_UNKNOWN = re.compile(r"unknown key ([^ ]+)\.(?: Did you mean ([^?]+)\?)?", re.DOTALL)
_FLAG = re.compile(r"--([a-z_]+)")

# Path, sentence, nearest valid name.
JobProblem = tuple[str, str, str]


def read_job_document(
    document: Mapping[str, Any], *, path: str = _SOURCE
) -> tuple[JobSpec | None, tuple[JobProblem, ...]]:
    """Returns the job, or None and what is wrong with it. Without a kind, it is train."""
    whole = {"kind": "train", **document}
    try:
        # JSON is YAML; one line, so that the lines of problems say nothing and can be left out.
        return from_yaml(json.dumps(whole), source=_SOURCE), ()
    except UserError as error:
        lines = [line.removeprefix("  - ") for line in error.message.splitlines()]
        if len(lines) > 1 and lines[0].endswith("things are wrong with this job:"):
            lines = lines[1:]
        return None, tuple(_problem(line, path) for line in lines if line)


def job_document(spec: JobSpec) -> dict[str, Any]:
    """Returns the document that `read_job_document` reads as this job, without what is at its default."""
    import yaml

    written: dict[str, Any] = yaml.safe_load(to_yaml(spec))
    plain = yaml.safe_load(to_yaml(JobSpec(kind=spec.kind)))
    document: dict[str, Any] = {"kind": spec.kind}
    for section, values in written.items():
        if section in ("kind", "job_name") or not isinstance(values, dict):
            continue
        changed = {name: value for name, value in values.items() if value != plain[section][name]}
        if changed:
            document[section] = changed
    return document


def without_env_values_in(spec: Mapping[str, Any], *, job: str) -> dict[str, Any]:
    """Returns the `spec` of a TrainingJob as it is in its document, with `job.nodes.envs` as variables from the job's
    Secret.
    """
    section = spec.get("job")
    nodes = section.get("nodes") if isinstance(section, Mapping) else None
    if not isinstance(section, Mapping) or not isinstance(nodes, Mapping) or not nodes.get("envs"):
        return dict(spec)
    kept = {name: value for name, value in nodes.items() if name != "envs"}
    try:
        names = parse_pairs(nodes["envs"], example="key=value")
        before = parse_pairs(nodes.get("secret_envs") or {}, example="key=value")
    except BadValue:
        # No job is made of it.
        return {**spec, "job": {**section, "nodes": kept}}
    kept["secret_envs"] = {**before, **references(job, names)}
    return {**spec, "job": {**section, "nodes": kept}}


def _problem(line: str, path: str) -> JobProblem:
    text = _PLACE.sub("", line)
    if unknown := _UNKNOWN.fullmatch(text):
        return f"{path}.{unknown[1]}", "there is no such field.", unknown[2] or ""
    if found := _FIELD.fullmatch(text):
        return f"{path}.{found[1]}", found[2], ""
    return path, text, ""
