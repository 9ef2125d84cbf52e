"""Rows of tables are not averaged: all-reduce refuses a model that has some, before anything is trained."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import nn

import elasticdl.torch
from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.worker.assembly import _training_loop
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.torch.allreduce_loop import AllReduceLoop
from elasticdl.worker.torch.trainer import TorchTrainer

SPEC = JobSpec.build(
    model_zoo="zoo",
    model_def="m.m.custom_model",
    training_data="data",
    num_workers=2,
    distribution_strategy="AllreduceStrategy",
)


class Network(nn.Module):
    def __init__(self, embedding: Any) -> None:
        super().__init__()
        self.users = embedding
        # Not known before the first batch.
        self.out = nn.LazyLinear(1)


def test_tables_are_refused(make_definition: Callable[..., ModelDefinition]) -> None:
    trainer = TorchTrainer(Network(elasticdl.torch.EmbeddingBag(4)), make_definition())
    with pytest.raises(UserError, match=r"have tables \(users\), which AllreduceStrategy cannot train"):
        _training_loop(trainer, SPEC)


def test_ordinary_embeddings_are_taken(make_definition: Callable[..., ModelDefinition]) -> None:
    trainer = TorchTrainer(Network(nn.Embedding(3, 4)), make_definition())
    assert _training_loop(trainer, SPEC) is AllReduceLoop
