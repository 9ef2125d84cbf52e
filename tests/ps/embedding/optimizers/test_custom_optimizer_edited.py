"""The file of an optimizer of the user's own is edited while the job runs: no one goes on with another unnoticed."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import NamedArrays
from elasticdl.ps.embedding.custom_optimizer import to_config
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.wire import ps_pb2

BASE = """
import elasticdl

class Base(elasticdl.Optimizer):
    def update(self, value, gradient, slots, learning_rate, step):
        return value - learning_rate * gradient
"""
OWN = """
from own_base import Base

class Own(Base):
    pass
"""


class Zoo:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, module: str, text: str) -> None:
        (self.folder / f"{module}.py").write_text(text)

    def forget(self) -> None:
        """As in a process that has just started."""
        for module in ("own_base", "own"):
            sys.modules.pop(module, None)
        importlib.invalidate_caches()

    def config(self) -> ps_pb2.OptimizerConfig:
        """What a worker that starts now says."""
        self.forget()
        config = to_config(importlib.import_module("own").Own())
        self.forget()
        return config


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Zoo]:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    # A file that changes twice within a second is the same one for compiled modules.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    made = Zoo(tmp_path)
    made.write("own_base", BASE)
    made.write("own", OWN)
    yield made
    made.forget()


def new_store(zoo: Zoo) -> Store:
    store = Store(ServerSettings(model_zoo=str(zoo.folder)))
    store.close(1)
    return store


def initialize(store: Store, optimizer: ps_pb2.OptimizerConfig) -> None:
    initial = InitialModel(trainable={"x": np.ones(2, np.float32)}, state={}, optimizer=optimizer)
    store.workers.initialize(initial, generation=1)


def test_a_server_that_has_the_same_file_takes_it(zoo: Zoo) -> None:
    store = new_store(zoo)
    store.open()
    config = zoo.config()
    assert config.source
    initialize(store, config)


@pytest.mark.parametrize("module", ["own", "own_base"])
def test_a_server_that_finds_another_file_refuses(zoo: Zoo, module: str) -> None:
    config = zoo.config()
    file = zoo.folder / f"{module}.py"
    file.write_text(file.read_text() + "\nSOMETHING = 1\n")
    store = new_store(zoo)
    store.open()
    with pytest.raises(UserError, match=r"own\.py has changed since the job began: the optimizer Own"):
        initialize(store, config)


def test_file_edited_after_import_has_no_effect(zoo: Zoo) -> None:
    store = new_store(zoo)
    store.open()
    config = zoo.config()
    initialize(store, config)
    zoo.write("own", OWN + "\nSOMETHING = 1\n")
    # It is imported already: what the file says now makes no difference to this process.
    again = new_store(zoo)
    again.open()
    initialize(again, config)


def test_a_worker_that_comes_later_with_another_file_changes_nothing(
    zoo: Zoo, caplog: pytest.LogCaptureFixture
) -> None:
    store = new_store(zoo)
    store.open()
    first = zoo.config()
    initialize(store, first)
    zoo.write("own", OWN + "\nSOMETHING = 1\n")
    with caplog.at_level(logging.WARNING, "elasticdl.ps"):
        initialize(store, zoo.config())
    assert "different file of the optimizer own:Own" in caplog.text
    optimizer = store.state.bucket_store.optimizer
    assert optimizer is not None
    assert optimizer["source"] == first.source


def test_a_job_from_a_checkpoint_may_have_another_file(zoo: Zoo) -> None:
    before = zoo.config()
    zoo.write("own", OWN + "\nSOMETHING = 1\n")
    now = zoo.config()
    assert before.source != now.source
    attributes: dict[str, Any] = {
        "version": 7,
        "optimizer_step": 5,
        "optimizer": {"name": before.name, "flavor": "python", "options": {}, "source": before.source},
    }
    groups: dict[str, dict[str, NDArray[Any]]] = {
        "trainable": {"x": np.ones(2, np.float32)},
        "state": {},
        "slot:step": {"x": np.array(5, np.int64)},
    }
    store = new_store(zoo)
    store.open(NamedArrays(attributes=attributes, groups=groups))
    initialize(store, now)
    optimizer = store.state.bucket_store.optimizer
    assert optimizer is not None
    assert optimizer["source"] == now.source
    assert store.state.bucket_store.dense.slots["x"]["step"] == 5
