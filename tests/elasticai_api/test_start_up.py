"""Importing the package loads no framework, and by itself nothing that takes time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("tensorflow", "keras", "torch", "paddle", "numpy", "elasticdl")


def _loaded(code: str, names: tuple[str, ...]) -> list[str]:
    code += f"\nimport sys; print(*[name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_package() -> None:
    assert _loaded("import elasticai_api", (*FRAMEWORKS, "grpc", "google.protobuf")) == []


@pytest.mark.parametrize(
    "module", ["common.data_shard_service", "common.master_client", "io.recordio_reader"]
)
def test_no_framework(module: str) -> None:
    assert _loaded(f"import elasticai_api.{module}", FRAMEWORKS) == []
