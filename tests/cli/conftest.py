"""The `elasticdl` command, run in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from elasticdl.cli.main import main
from tests.catalog.api_server import api as api

ROOT = Path(__file__).parents[2]
DEFINITION = """\
def custom_model(): ...
def loss(labels, predictions): ...
def optimizer(): ...
def feed(dataset, mode, metadata): ...
def eval_metrics_fn(): ...
"""


@dataclass(frozen=True, kw_only=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def job(self) -> dict[str, dict[str, object]]:
        """What --dry_run printed; of a job with an image, what its record holds."""
        assert self.code == 0, self.err
        document = next(yaml.safe_load_all(self.out))
        if document.get("apiVersion"):
            document = yaml.safe_load(document["data"]["spec.yaml"])
        assert isinstance(document, dict)
        return document


Command = Callable[..., Result]


@pytest.fixture
def elasticdl(capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str) -> Result:
        code = main(words)
        out, err = capsys.readouterr()
        return Result(code=code, out=out, err=err)

    return run


@pytest.fixture
def elasticdl_process() -> Command:
    """As a process, for what a process alone has: its environment, its output, its imports."""

    def run(*words: str, env: dict[str, str] | None = None, stdin: str = "") -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "elasticdl", *words],
            capture_output=True,
            text=True,
            input=stdin,
            cwd=ROOT,
            env={**os.environ, **(env or {})},
            check=False,
        )
        return Result(code=done.returncode, out=done.stdout, err=done.stderr)

    return run


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """A model zoo with one definition, digits.cnn.custom_model."""
    folder = tmp_path / "zoo"
    (folder / "digits").mkdir(parents=True)
    (folder / "digits" / "cnn.py").write_text(DEFINITION)
    return folder


@pytest.fixture
def minimal(zoo: Path) -> list[str]:
    """The flags that `elasticdl train` cannot do without."""
    return [f"--model_zoo={zoo}", "--model_def=digits.cnn.custom_model", "--training_data=data"]
