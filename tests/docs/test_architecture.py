"""The architecture page names modules that exist, and pictures are what their scripts draw."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "architecture.md"
IMAGES = ROOT / "docs" / "images"


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, IMAGES / f"{name}.py")
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_names_only_modules_that_exist() -> None:
    named = re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?|[a-z_]+\.py)`", PAGE.read_text())
    assert len(named) > 10
    assert [
        name for name in named if not any((folder / name).exists() for folder in (ROOT, ROOT / "elasticdl"))
    ] == []


@pytest.mark.parametrize(
    ("script", "name"),
    [
        *(("architecture", name) for name in ("packages", "local_job", "cluster_job", "batch", "checkpoint")),
        *(
            ("concepts", name)
            for name in (
                "job_anatomy",
                "shard_life",
                "replica_handover",
                "planner_decision",
                "cluster_timeline",
            )
        ),
    ],
)
def test_picture_is_what_the_script_draws(script: str, name: str) -> None:
    drawn = getattr(_script(script), name)()
    assert (IMAGES / f"{name.replace('_', '-')}.svg").read_text() == drawn
