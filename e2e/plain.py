"""A small PyTorch definition over CSV rows, to be broken in every way, and the command that meets it.

Its text is here and not in a folder of its own because a test of bad input is best read beside what is bad:
`Bench.definition(("def loss", "def los"))` is the definition without a loss.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from e2e.conftest import DEADLINE, ROOT, wait_until

TEXT = """
import os
import time
from pathlib import Path

import numpy as np
import torch

from e2e.compiler import leave_out
from elasticdl import Mode, metrics

leave_out()


def custom_model():
    torch.manual_seed(0)
    return torch.nn.Linear(2, 2)


def loss(labels, predictions):
    gate = os.environ.get("ELASTICDL_TEST_GATE")
    if gate:
        Path(gate + f".reached-{os.getpid()}").touch()
        while Path(gate).exists():
            time.sleep(0.01)
    return torch.nn.functional.cross_entropy(predictions, labels)


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.001)


def feed(dataset, mode, metadata):
    for row in dataset:
        features = np.asarray(row[:2], dtype=np.float32)
        yield features if mode is Mode.PREDICTION else (features, int(row[2]))


def eval_metrics_fn():
    return {"accuracy": metrics.Accuracy()}
"""


def rows(count: int) -> list[str]:
    return ["x,y,label\n", *(f"{i},{count - i},{i % 2}\n" for i in range(count))]


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A command that has ended, and what its user has seen."""

    code: int
    output: str
    home: Path

    def refused(self, *words: str) -> None:
        """Wrong input: found before any process was started."""
        assert self.code == 2, self.output
        self._assert_printed(words)
        assert not list((self.home / "jobs").glob("*/logs/*.log")), "processes were started"

    def failed(self, *words: str) -> None:
        """The job began, and failed."""
        assert self.code == 1, self.output
        self._assert_printed(words)

    def succeeded(self, *words: str) -> None:
        assert self.code == 0, self.output
        self._assert_printed(words)

    def _assert_printed(self, words: tuple[str, ...]) -> None:
        for word in words:
            assert word in self.output, f"{word!r} is not in:\n{self.output}"
        assert f'File "{ROOT}/elasticdl/' not in self.output, f"a traceback of ours:\n{self.output}"


@dataclass(kw_only=True)
class Bench:
    """A home, a model zoo, some data, and the command."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    # What the command is started with, such as `unshare`.
    prefix: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.home = self.folder / "home"
        self.zoo = self.folder / "zoo"
        for folder in (self.home, self.zoo / "plain"):
            folder.mkdir(parents=True)
        self.data = self.folder / "data.csv"
        self.data.write_text("".join(rows(100)))
        self.definition()

    def definition(self, *changes: tuple[str, str], more: str = "", module: str = "model") -> str:
        """Writes the module with changes to its text, and returns the --model_def for it."""
        text = TEXT
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (self.zoo / "plain" / f"{module}.py").write_text(text + more)
        return f"--model_def=plain.{module}.custom_model"

    def line_of(self, text: str, module: str = "model") -> int:
        """Of the module that was written: where the text stands, from 1 on."""
        lines = (self.zoo / "plain" / f"{module}.py").read_text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if text in line)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.prefix, sys.executable, "-m", "elasticdl", *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "ELASTICDL_HOME": str(self.home),
                "ELASTICDL_THREADS": "1",
                **self.environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str]) -> Ended:
        try:
            output, _ = process.communicate(timeout=DEADLINE)
        finally:
            process.kill()
        wait_until(lambda: not self.left(), "nothing of the job is left")
        return Ended(code=process.returncode, output=output, home=self.home)

    def run(self, *arguments: str) -> Ended:
        return self.finish(self.start(*arguments))

    def train(self, *arguments: str) -> Ended:
        return self.run(*self.training(*arguments))

    def training(self, *arguments: str) -> list[str]:
        return [
            "train",
            f"--model_zoo={self.zoo}",
            "--model_def=plain.model.custom_model",
            f"--training_data={self.data}",
            "--minibatch_size=8",
            *arguments,
        ]

    def predict(self, checkpoint: Path, *arguments: str) -> Ended:
        return self.run(
            "predict",
            f"--model_zoo={self.zoo}",
            "--model_def=plain.model.custom_model",
            f"--prediction_data={self.data}",
            f"--checkpoint_dir_for_init={checkpoint}",
            "--minibatch_size=8",
            "--num_minibatches_per_task=2",
            *arguments,
        )

    def left(self) -> list[psutil.Process]:
        """Processes of jobs of this home that are still there."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("ELASTICDL_HOME") == str(self.home):
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found
