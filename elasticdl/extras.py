"""The packages behind each extra of this distribution, for hints about one that is missing.

A hint names the packages themselves, which every index has. It does not name `elasticdl[EXTRA]`: that resolves only
where this version is installed as a distribution. `tests/docs/test_install_hints.py` compares the table with
pyproject.toml.
"""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping

# TensorFlow without GPUs is a third of the size; there is one for these processors only.
_TENSORFLOW = "tensorflow-cpu" if platform.machine() in ("x86_64", "AMD64") else "tensorflow"

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "keras": (f"{_TENSORFLOW}>=2.15",),
    "torch": ("torch>=2.2",),
    "paddle": ("paddlepaddle==2.6.2", "numpy<2", "pyarrow<22", "setuptools"),
    "kubernetes": ("cryptography>=42", "httpx>=0.27,<1"),
    "ssh": ("cryptography>=42",),
    "dashboard": ("starlette>=0.40", "uvicorn>=0.30"),
    "plots": ("pillow>=10.1",),
    "datasets": ("scikit-learn>=1.3",),
    "tracking": ("mlflow-skinny>=2.14",),
    "opentelemetry": ("opentelemetry-sdk>=1.45.1", "opentelemetry-exporter-otlp-json-http>=0.66b1"),
    "wandb": ("wandb>=0.19",),
}


def install_command(extra: str) -> str:
    """Returns the shell command that installs what an extra consists of."""
    return f"pip install {shlex.join(REQUIREMENTS[extra])}"
