"""An export is loaded with PyTorch alone and gives the model's outputs, for any number of samples."""

import errno
import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from elasticdl.errors import UserError
from elasticdl.worker.torch.export import PROGRAM, SCRIPT, VALUES
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard


def batch_of(features: Any, size: int) -> Batch:
    shard = Shard(lease_id=1, epoch=0, start=0, end=size)
    return Batch(shard=shard, position=size, atomic=False, last=True, size=size, features=features)


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(144, 10)
    )


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 1), nn.Linear(2, 1)

    def forward(self, wide: torch.Tensor, deep: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sum": self.a(wide) + self.b(deep)}


class Unruly(nn.Module):
    """Decides by values, which no program can be written for."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, features: Any) -> Any:
        return (
            self.layer(features) if float(features.sum()) > 0 else self.layer(-features) + len(str(features))
        )


@pytest.fixture
def trainer_of(make_definition: Any) -> Any:
    return lambda model: TorchTrainer(model, make_definition(optimizer=lambda p: torch.optim.SGD(p, lr=0.1)))


@pytest.mark.parametrize("size", [1, 3])
def test_one_input(size: int, trainer_of: Any, tmp_path: Path) -> None:
    trainer = trainer_of(convolutions())
    trainer.callbacks(leader=True, epochs=1)
    lines = trainer.export(tmp_path / "model", batch_of(torch.randn(size, 1, 8, 8), size))
    assert [line.split(":")[0] for line in lines] == ["values", "program", "TorchScript"]
    assert sorted(file.name for file in (tmp_path / "model").iterdir()) == sorted([VALUES, PROGRAM, SCRIPT])
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
    program = torch.export.load(tmp_path / "model" / PROGRAM).module()
    script = torch.jit.load(str(tmp_path / "model" / SCRIPT))
    values = convolutions()
    values.load_state_dict(torch.load(tmp_path / "model" / VALUES, weights_only=True))
    values.eval()
    for count in (1, 2, 5):
        features = torch.randn(count, 1, 8, 8)
        expected = trainer.predict(batch_of(features, count))["output"]
        for loaded in (program, script, values):
            np.testing.assert_allclose(loaded(features).detach().numpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("named", [True, False])
def test_several_inputs(named: bool, trainer_of: Any, tmp_path: Path) -> None:
    wide, deep = torch.randn(4, 3), torch.randn(4, 2)
    features = {"wide": wide, "deep": deep} if named else (wide, deep)
    trainer = trainer_of(Wide())
    lines = trainer.export(tmp_path / "model", batch_of(features, 4))
    assert [line.split(":")[0] for line in lines] == ["values", "program", "TorchScript"]
    program = torch.export.load(tmp_path / "model" / PROGRAM).module()
    script = torch.jit.load(str(tmp_path / "model" / SCRIPT))
    arguments = {"wide": wide[:3], "deep": deep[:3]}
    found = program(**arguments) if named else program(*arguments.values())
    expected = trainer.predict(batch_of(arguments if named else tuple(arguments.values()), 3))
    np.testing.assert_allclose(found["sum"].detach().numpy(), expected["sum"], rtol=1e-5)
    np.testing.assert_allclose(script(**arguments)["sum"].detach().numpy(), expected["sum"], rtol=1e-5)


class OneDictionary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1)

    def forward(self, features: Any) -> Any:
        return self.layer(features["wide"])


def test_script_that_cannot_take_a_dictionary_is_reported(trainer_of: Any, tmp_path: Path) -> None:
    trainer = trainer_of(OneDictionary())
    lines = trainer.export(tmp_path / "model", batch_of({"wide": torch.randn(4, 3)}, 4))
    assert [line.split(":")[0] for line in lines] == ["values", "program", "no TorchScript"]


def test_a_model_that_cannot_be_taken_apart_keeps_its_values(trainer_of: Any, tmp_path: Path) -> None:
    trainer = trainer_of(Unruly())
    lines = trainer.export(tmp_path / "model", batch_of(torch.randn(4, 3), 4))
    assert [line.split(":")[0] for line in lines] == ["values", "no program", "no TorchScript"]
    assert [file.name for file in (tmp_path / "model").iterdir()] == [VALUES]


class Noisy(nn.Linear):
    """Gives other outputs each time, so that nothing can be shown to be the same model."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return super().forward(features) + torch.rand(1)


def test_a_program_that_gives_other_outputs_is_not_kept(trainer_of: Any, tmp_path: Path) -> None:
    lines = trainer_of(Noisy(3, 2)).export(tmp_path / "model", batch_of(torch.randn(4, 3), 4))
    assert "no program: " in lines[1]
    assert "outputs differ" in lines[1]
    assert [file.name for file in (tmp_path / "model").iterdir()] == [VALUES]


def test_over_an_older_export(trainer_of: Any, tmp_path: Path) -> None:
    path = tmp_path / "model"
    trainer_of(convolutions()).export(path, batch_of(torch.randn(2, 1, 8, 8), 2))
    (path / "notes.txt").write_text("mine")
    trainer_of(Unruly()).export(path, batch_of(torch.randn(4, 3), 4))
    assert sorted(file.name for file in path.iterdir()) == ["notes.txt", VALUES]
    assert set(torch.load(path / VALUES, weights_only=True)) == {"layer.weight", "layer.bias"}


def test_a_place_that_cannot_be_written(trainer_of: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="could not be written to"):
        trainer_of(Unruly()).export(tmp_path / "file" / "model", batch_of(torch.randn(4, 3), 4))


@pytest.fixture
def small_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No file can grow beyond 4 KB: the nearest to a full disk that a process can do to itself."""
    # A limit on the size of files would truncate what Python caches of a module, for good.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.usefixtures("small_disk")
def test_a_disk_without_room_leaves_the_older_export(trainer_of: Any, tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.mkdir()
    (path / VALUES).write_text("older")
    with pytest.raises(UserError, match=os.strerror(errno.EFBIG)):
        trainer_of(nn.Linear(100, 100)).export(path, batch_of(torch.randn(4, 100), 4))
    assert (path / VALUES).read_text() == "older"
    assert [file.name for file in tmp_path.iterdir()] == ["model"]
