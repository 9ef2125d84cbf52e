"""Trainers of other libraries alone in one process: the steps are theirs, each sample is trained once an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from elasticai_api.errors import ElasticError

SIZE = 20


def _tensors() -> tuple[Any, Any]:
    inputs = torch.randn(SIZE, 3, generator=torch.Generator().manual_seed(0))
    return inputs, inputs.sum(1, keepdim=True)


class _Rows(Dataset[dict[str, Any]]):
    def __init__(self) -> None:
        self.read: list[int] = []
        self._inputs, self._targets = _tensors()

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.read.append(index)
        return {"inputs": self._inputs[index], "labels": self._targets[index]}


class _Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, inputs: Any, labels: Any) -> dict[str, Any]:
        outputs = self.layer(inputs)
        return {"loss": torch.nn.functional.mse_loss(outputs, labels), "logits": outputs}


def _arguments(folder: Path, **more: Any) -> Any:
    import transformers

    return transformers.TrainingArguments(
        **{
            "output_dir": str(folder),
            "per_device_train_batch_size": 5,
            "num_train_epochs": 2,
            "learning_rate": 0.1,
            "optim": "sgd",
            "lr_scheduler_type": "linear",
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "use_cpu": True,
            **more,
        }
    )


def test_transformers_trainer_steps_once_for_batches_of_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a job of two workers does: two batches a step. The clipped norm is that of both."""
    from elasticai_api.transformers.trainer import ElasticTrainer

    monkeypatch.setenv("WORKER_NUM", "2")
    dataset = _Rows()
    trainer = ElasticTrainer(
        model=_Model(), args=_arguments(tmp_path, max_grad_norm=0.5), train_dataset=dataset
    )
    norms: list[float] = []
    trainer.controller.before_step(
        lambda: norms.append(float(torch.nn.utils.get_total_norm([trainer.model.layer.weight.grad])))
    )
    trainer.train()
    assert (trainer.state.global_step, trainer.state.max_steps, trainer.state.epoch) == (4, 4, 2.0)
    assert sorted(dataset.read) == sorted(2 * list(range(SIZE)))
    # The schedule goes by steps, down to 0 at the end.
    assert trainer.optimizer.param_groups[0]["lr"] == pytest.approx(0.0)
    assert len(norms) == 4
    with pytest.raises(ElasticError, match="called before"):
        trainer.train()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps"),
        ({"max_steps": 3}, "max_steps"),
        ({"num_train_epochs": 1.5}, "num_train_epochs must be a whole number"),
        ({"dataloader_drop_last": True}, "dataloader_drop_last"),
    ],
)
def test_transformers_arguments_of_another_ledger_are_refused(
    tmp_path: Path, arguments: dict[str, Any], words: str
) -> None:
    from elasticai_api.transformers.trainer import ElasticTrainer

    with pytest.raises(ElasticError, match=words):
        ElasticTrainer(model=_Model(), args=_arguments(tmp_path, **arguments), train_dataset=_Rows())


def test_transformers_trainer_does_not_skip_batches(tmp_path: Path) -> None:
    from elasticai_api.transformers.trainer import ElasticTrainer

    trainer = ElasticTrainer(model=_Model(), args=_arguments(tmp_path), train_dataset=_Rows())
    with pytest.raises(ElasticError, match="resume_from_checkpoint"):
        trainer.train(resume_from_checkpoint=str(tmp_path))


def _fit(
    tmp_path: Path, *, schedule_by: str = "step", **options: Any
) -> tuple[Any, Any, list[tuple[int, int]]]:
    """Returns the trainer, the module, and epoch and step of each validation."""
    import lightning

    from elasticai_api.lightning.callback import ElasticCallback

    validated: list[tuple[int, int]] = []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.layer = torch.nn.Linear(3, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

        def validation_step(self, batch: Any, number: int) -> None:
            validated.append((self.trainer.current_epoch, self.trainer.global_step))

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": schedule_by}}

    elastic = ElasticCallback(DataLoader(TensorDataset(*_tensors()), batch_size=5, shuffle=True))
    trainer = lightning.Trainer(
        **{
            "max_epochs": 2,
            "callbacks": [elastic],
            "accelerator": "cpu",
            "default_root_dir": str(tmp_path),
            "logger": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
            **options,
        }
    )
    module = Module()
    trainer.fit(module, elastic.loader, DataLoader(TensorDataset(*_tensors()), batch_size=SIZE))
    return trainer, module, validated


def test_lightning_steps_once_for_batches_of_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKER_NUM", "2")
    trainer, _, validated = _fit(tmp_path)
    assert validated == [(0, 2), (1, 4)]
    assert (trainer.current_epoch, trainer.global_step) == (2, 4)
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.1 * 0.5**4)
    assert [path.name for path in tmp_path.rglob("*.ckpt")] == ["epoch=1-step=4.ckpt"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"accumulate_grad_batches": 2}, "accumulate_grad_batches"),
        ({"max_epochs": None, "max_steps": 3}, "max_steps"),
        ({"limit_train_batches": 0.5}, "limit_train_batches"),
        ({"val_check_interval": 0.5}, "val_check_interval"),
        ({"schedule_by": "epoch"}, "has to go by steps"),
    ],
)
def test_lightning_settings_of_another_ledger_are_refused(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ElasticError, match=words):
        _fit(tmp_path, **options)
