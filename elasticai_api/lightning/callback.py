"""PyTorch Lightning: a `Trainer.fit` whose workers may come and go while they train one model.

    elastic = ElasticCallback(DataLoader(dataset, batch_size=32, shuffle=True))
    trainer = lightning.Trainer(max_epochs=3, callbacks=[elastic])
    trainer.fit(module, elastic.loader, validation_loader)

The loop is Lightning's. Its batches come from the ledger of the job, and its optimizer and schedule step when all
batches of a step are computed (`elasticai_api.pytorch.controller`). `trainer.global_step` and `trainer.current_epoch`
are those of the training, also in a worker that joins in the middle of it.

Failure modes
    What a killed worker had computed of a step, the others compute; its replacement gets model, optimizer and schedule
    from them, and skips no batch. A drained worker ends the program after its step, by `Drained`. Only the oldest one
    writes checkpoints. What would need another ledger (accumulation, limits, `max_steps`, several devices in a process)
    is refused before the first batch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch

from elasticai_api.errors import Drained, ElasticError
from elasticai_api.pytorch.controller import ElasticController, create_elastic_controller
from elasticai_api.pytorch.epochs import Epoch
from elasticai_api.pytorch.loading import plan_of

# Both packages have the same classes under two names; a Trainer of one does not take a callback of the other.
if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


class ElasticCallback(Callback):  # type: ignore[misc]
    """Shares the steps of `Trainer.fit` with the other workers of the job.

    Args:
        loader: A `DataLoader` with `batch_size` and perhaps `shuffle`, as a plain program has it. `fit` gets
            `callback.loader` in its place.
        dataset_name: By which all workers mean the same data set.

    Raises:
        elasticai_api.errors.ElasticError: The loader or a setting of the Trainer cannot be shared.

    Example:
        >>> elastic = ElasticCallback(DataLoader(dataset, batch_size=32, shuffle=True))
        >>> lightning.Trainer(max_epochs=3, callbacks=[elastic]).fit(module, elastic.loader)
    """

    def __init__(self, loader: Any, *, dataset_name: str | None = None) -> None:
        self._plan = plan_of(loader)
        self._source = loader
        self._name = dataset_name
        self._controller: ElasticController | None = None
        self._epoch: Epoch | None = None
        self.loader = _TeamLoader(self)

    @property
    def controller(self) -> ElasticController:
        """Returns the controller, with the team and the place in the training; from the beginning of `fit` on."""
        if self._controller is None:
            raise ElasticError(
                "There is no training yet. Give this callback to the Trainer, and its `loader` to fit."
            )
        return self._controller

    def batches(self) -> Iterator[Any]:
        """Yields this worker's batches of the present epoch, for `loader`."""
        epoch, self._epoch = self._epoch or self.controller.next_epoch(), None
        return iter(()) if epoch is None else iter(epoch)

    def __len__(self) -> int:
        return -(-self._plan.size // self._plan.batch_size)

    # -- hooks of the Trainer --------------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit":
            return
        _check(trainer, pl_module)
        self._controller = create_elastic_controller(
            loader=self._source, num_epochs=trainer.max_epochs, dataset_name=self._name
        )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        controller = self.controller
        controller.set_broadcast_model(pl_module)
        controller.set_broadcast_optimizer(trainer.optimizers[0])
        for config in trainer.lr_scheduler_configs:
            if config.interval != "step" or config.frequency != 1 or config.reduce_on_plateau:
                raise ElasticError(
                    'A learning-rate schedule has to go by steps, with {"scheduler": ..., "interval": "step"} in '
                    "configure_optimizers, so that a worker that joins is where the others are."
                )
            controller.set_broadcast_scheduler(config.scheduler)
        if trainer.gradient_clip_val:
            # The limit is for the gradients of all workers together.
            clip, trainer.gradient_clip_val = trainer.gradient_clip_val, None
            by_value = str(trainer.gradient_clip_algorithm or "").endswith("value")
            norm_or_value = torch.nn.utils.clip_grad_value_ if by_value else torch.nn.utils.clip_grad_norm_
            controller.before_step(lambda: norm_or_value(pl_module.parameters(), clip))
        trainer.strategy.checkpoint_io = _OldestWrites(trainer.strategy.checkpoint_io, controller)
        # How many batches of an epoch are this worker's is known when it has ended.
        loop = trainer.fit_loop
        loop.max_epochs = -1
        loop.max_batches = trainer.val_check_batch = float("inf")
        self._epoch = controller.next_epoch()
        if self._epoch is None:
            trainer.should_stop = True
        else:
            progress = loop.epoch_progress.current
            progress.ready = progress.started = progress.processed = progress.completed = self._epoch.number

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        controller = self.controller
        # Lightning's own loss of the batch came too late to be reported with it.
        before = trainer.fit_loop.epoch_loop
        before.automatic_optimization.optim_progress.optimizer.step.total.completed = controller.step
        current = trainer.current_epoch
        micro = controller.begin_batch()
        if controller.is_drained:
            controller.close()
            raise Drained
        # By now all workers have made the last step of the epoch, if it is over: validation sees the same model.
        before.batch_progress.is_last_batch = micro is None or micro.epoch > current

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self.controller.is_over:
            trainer.should_stop = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.controller.finish()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        # The others need not wait for this worker until it has ended.
        if self._controller is not None:
            self._controller.close()


class _TeamLoader:
    """The loader that `fit` receives: each iteration yields the batches of one epoch of this worker."""

    def __init__(self, callback: ElasticCallback) -> None:
        self._callback = callback

    def __len__(self) -> int:
        # With a length, Lightning does not prefetch: a batch counts as trained when the next one is asked for.
        return len(self._callback)

    def __iter__(self) -> Iterator[Any]:
        # When the first batch is asked for: Lightning makes the iterator before there is an optimizer.
        yield from self._callback.batches()


class _OldestWrites:
    """Writes and removes checkpoints in the oldest worker, and in no other one."""

    def __init__(self, inner: Any, controller: ElasticController) -> None:
        self._inner = inner
        self._controller = controller

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def save_checkpoint(self, *arguments: Any, **keywords: Any) -> None:
        if self._controller.first:
            self._inner.save_checkpoint(*arguments, **keywords)

    def remove_checkpoint(self, *arguments: Any, **keywords: Any) -> None:
        if self._controller.first:
            self._inner.remove_checkpoint(*arguments, **keywords)


def _check(trainer: Any, module: Any) -> None:
    if trainer.world_size != 1:
        raise ElasticError(
            f"devices: this Trainer has {trainer.world_size} processes of its own. The job starts the workers: give "
            "Trainer(devices=1)."
        )
    if not module.automatic_optimization:
        raise ElasticError("automatic_optimization=False: for a loop of your own use controller.epochs().")
    if trainer.accumulate_grad_batches != 1:
        raise ElasticError(
            "accumulate_grad_batches: a step is already as many batches as the job was started with workers. Use "
            "--num_workers, or larger batches."
        )
    if trainer.max_epochs is None or trainer.max_epochs < 1 or trainer.max_steps > 0:
        raise ElasticError("max_steps: the ledger counts epochs. Give Trainer(max_epochs=...).")
    if trainer.limit_train_batches != 1.0 or trainer.overfit_batches:
        raise ElasticError("limit_train_batches, overfit_batches: an epoch here has every sample.")
    if trainer.val_check_interval != 1.0:
        raise ElasticError("val_check_interval: validation is at the end of an epoch, in all workers.")
