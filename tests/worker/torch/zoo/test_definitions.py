"""Every PyTorch definition of the model zoo learns its data, and can be evaluated, used and exported."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from elasticdl.jobs.mode import Mode
from elasticdl.worker.definition import load_definition
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Shard
from elasticdl.worker.trainer_factory import make_trainer

ZOO = Path(__file__).parents[4] / "model_zoo"


def trainer_of(name: str) -> TorchTrainer:
    torch.manual_seed(0)
    definition = load_definition(model_zoo=str(ZOO), model_def=name, names={}, model_params={})
    trainer = make_trainer(definition)
    assert isinstance(trainer, TorchTrainer)
    return trainer


def shards(size: int, count: int) -> list[Shard]:
    edges = np.linspace(0, size, count + 1).astype(int).tolist()
    return [Shard(lease_id=i, epoch=0, start=edges[i], end=edges[i + 1]) for i in range(count)]


def test_rows_without_a_species_can_be_predicted_for(memory_reader: Any) -> None:
    trainer = trainer_of("iris.torch_dnn.custom_model")
    reader = memory_reader([["5.1", "3.5", "1.4", "0.2"]] * 3, kind="row")
    (batch,) = trainer.batches(reader, shards(3, 1), mode=Mode.PREDICTION, batch_size=8, max_bad_records=0)
    assert trainer.predict(batch)["output"].shape == (3, 3)
