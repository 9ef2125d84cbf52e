"""What a user gets wrong in a PyTorch definition is said in terms of the definition."""

from typing import Any

import pytest
import torch
from torch import nn

from elasticdl.errors import UserError
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard


def batch_of(labels: Any) -> Batch:
    shard = Shard(lease_id=1, epoch=0, start=0, end=8)
    return Batch(
        shard=shard, position=8, atomic=False, last=True, size=8, features=torch.randn(8, 3), labels=labels
    )


@pytest.fixture
def trainer_with(make_definition: Any) -> Any:
    def make(loss: Any, model: nn.Module | None = None) -> TorchTrainer:
        definition = make_definition(
            loss=loss, optimizer=lambda p: torch.optim.SGD(p, lr=0.1), eval_metrics_fn=dict
        )
        return TorchTrainer(model or nn.Linear(3, 2), definition)

    return make


@pytest.mark.parametrize("how", ["train", "gradients", "evaluate"])
def test_shapes_that_do_not_fit_the_loss(how: str, trainer_with: Any) -> None:
    trainer = trainer_with(lambda labels, predictions: nn.functional.cross_entropy(predictions, labels))
    with pytest.raises(UserError) as caught:
        getattr(trainer, how)(batch_of(torch.zeros(7, dtype=torch.int64)))
    assert "labels int64[7] and predictions float32[8, 2]" in str(caught.value)
    assert "to match target batch_size" in str(caught.value)


def test_labels_that_are_no_class(trainer_with: Any) -> None:
    trainer = trainer_with(lambda labels, predictions: nn.functional.cross_entropy(predictions, labels))
    with pytest.raises(UserError, match=r"Target 5 is out of bounds"):
        trainer.train(batch_of(torch.full((8,), 5)))


def test_types_that_do_not_fit_the_loss(trainer_with: Any) -> None:
    trainer = trainer_with(lambda labels, predictions: nn.functional.nll_loss(predictions, labels))
    with pytest.raises(UserError, match=r"labels float32\[8\] and predictions float32\[8, 2\]"):
        trainer.train(batch_of(torch.zeros(8)))


def test_a_column_against_a_row(trainer_with: Any) -> None:
    trainer = trainer_with(
        lambda labels, predictions: nn.functional.mse_loss(predictions, labels), nn.Linear(3, 1)
    )
    with pytest.raises(UserError, match=r"labels float32\[8\] and predictions float32\[8, 1\]"):
        trainer.train(batch_of(torch.zeros(8)))
    assert trainer.train(batch_of(torch.zeros(8, 1))) > 0


def test_loss_without_gradient_is_rejected(trainer_with: Any) -> None:
    with pytest.raises(UserError, match=r"loss\(\) returns float"):
        trainer_with(lambda labels, predictions: 1.0).train(batch_of(None))
    with pytest.raises(UserError, match="does not depend on the parameters"):
        trainer_with(lambda labels, predictions: predictions.detach().sum()).train(batch_of(None))


def test_errors_of_the_model_keep_their_traceback(trainer_with: Any) -> None:
    class Broken(nn.Module):
        def forward(self, features: Any) -> Any:
            return dict[str, Any]()["missing"]

    with pytest.raises(KeyError) as caught:
        trainer_with(lambda labels, predictions: predictions.sum(), Broken()).predict(batch_of(None))
    assert any(entry.name == "forward" for entry in caught.traceback)


@pytest.mark.parametrize(
    "text",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 1",
    ],
)
@pytest.mark.parametrize("where", ["model", "loss"])
def test_out_of_memory_raises_memory_error(text: str, where: str, trainer_with: Any) -> None:
    def full(*_: Any) -> Any:
        raise RuntimeError(text)

    class Large(nn.Linear):
        def forward(self, features: Any) -> Any:
            return full() if where == "model" else super().forward(features)

    trainer = trainer_with(full, Large(3, 2))
    with pytest.raises(MemoryError):
        trainer.train(batch_of(None))


def test_more_memory_than_there_is(trainer_with: Any) -> None:
    class Huge(nn.Linear):
        def forward(self, features: Any) -> Any:
            return torch.empty(1 << 60)

    with pytest.raises(MemoryError):
        trainer_with(lambda labels, predictions: predictions.sum(), Huge(3, 2)).train(batch_of(None))


def test_outputs_that_are_not_of_samples(trainer_with: Any) -> None:
    class Total(nn.Linear):
        def forward(self, features: Any) -> Any:
            return super().forward(features).sum()

    with pytest.raises(UserError, match=r"output has shape \[\] for a batch of 8 samples"):
        trainer_with(None, Total(3, 2)).predict(batch_of(None))


def test_values_before_a_lazy_model_is_built(trainer_with: Any) -> None:
    with pytest.raises(RuntimeError, match="lazy"):
        trainer_with(None, nn.LazyLinear(2)).parameters()
