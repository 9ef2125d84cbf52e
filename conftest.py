"""Markers that follow from where a test is: `pytest -m "not paddle"` needs no list of files.

The names of the folder, of the file and of the test say which framework a test is for. Whole jobs (`e2e/`) are `slow`,
those on Kubernetes also `cluster`. Tests of packages whose line coverage is measured are `covered`. pyproject.toml says
what each marker means.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent
FRAMEWORKS = {
    "estimator": "keras",
    "keras": "keras",
    "lightning": "torch",
    "paddle": "paddle",
    "pytorch": "torch",
    "tensorflow": "keras",
    "torch": "torch",
    "transformers": "torch",
}
# As in the Makefile.
COVERED = ("controller", "jobs", "master/health", "master/ledger", "scheduling", "wire")


def markers_of(node_id: str) -> set[str]:
    """The markers of a test, by its path below the root and its name."""
    words = re.findall(r"[a-z]+", node_id.lower())
    markers = {FRAMEWORKS[word] for word in words if word in FRAMEWORKS}
    if node_id.startswith("e2e/"):
        markers.add("slow")
    if node_id.startswith("e2e/kubernetes/"):
        markers.add("cluster")
    if node_id.startswith(tuple(f"tests/{package}/" for package in COVERED)):
        markers.add("covered")
    return markers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if ROOT in item.path.parents:
            name = f"{item.path.relative_to(ROOT).as_posix()}::{item.name}"
            for marker in sorted(markers_of(name)):
                item.add_marker(marker)
