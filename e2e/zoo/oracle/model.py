"""A model that counts: sample i adds 1 to row i of a table and to each of twelve dense counters.

With SGD at rate 1 the gradient of every sample is -1 wherever it goes, so the parameters say how often each sample was
applied, on every parameter server, without the ledger.

While files `death-N` are in the folder of the gates, workers take one and kill themselves between two pushes of a
batch: before they send a server its part. A process that has begun to train leaves a file `trained-PID`.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import elasticdl.torch
from e2e.compiler import leave_out
from elasticdl.ps.protocol import call_codec
from elasticdl.wire.frames import Connection

leave_out()

COUNTERS = 12
GATES = Path(os.environ["ELASTICDL_TEST_GATES"])
_DICE = random.Random(f"{os.environ.get('ELASTICDL_TEST_SEED')} {os.environ.get('ELASTICDL_NODE')}")
# Of a push to one server. A batch has one for each.
_DEATH_CHANCE = 0.04
_SECONDS_PER_BATCH = 0.01
# Holds another number of seconds, which may change while the job runs.
_PACE = GATES / "pace"


class Counting(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.rows = elasticdl.torch.Embedding(1, name="rows", initializer="zeros")
        self.counters = torch.nn.ParameterList(torch.zeros(1) for _ in range(COUNTERS))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.rows(ids).squeeze(-1) + sum(self.counters)


def custom_model() -> torch.nn.Module:
    if replayed := os.environ.get("ELASTICDL_TEST_REPLAYED"):
        # Imported here: other jobs send nothing twice.
        from oracle.replays import replay

        replay(_DICE, float(replayed))
    if not getattr(Connection, "dies", False):
        _die_between_pushes()
    return Counting()


def loss(labels: torch.Tensor, predictions: torch.Tensor) -> torch.Tensor:
    (GATES / f"trained-{os.getpid()}").touch()
    time.sleep(float(_PACE.read_text()) if _PACE.exists() else _SECONDS_PER_BATCH)
    return -predictions.sum()


def optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=1.0)


def feed(dataset: Any, mode: Any, metadata: Any) -> Any:
    for row in dataset:
        yield np.int64(row[0]), np.int64(0)


def eval_metrics_fn() -> dict[str, Any]:
    return {}


def _die_between_pushes() -> None:
    send = Connection.send

    def send_or_die(self: Connection, kind: int, *arguments: Any, **more: Any) -> None:
        if kind == call_codec.PUSH and _DICE.random() < _DEATH_CHANCE:
            for death in GATES.glob("death-*"):
                try:
                    death.rename(death.with_name(f"died-{death.name}-{os.getpid()}"))
                except FileNotFoundError:
                    continue
                os.kill(os.getpid(), signal.SIGKILL)
        send(self, kind, *arguments, **more)

    Connection.send = send_or_die  # type: ignore[method-assign]
    Connection.dies = True  # type: ignore[attr-defined]
