"""Hugging Face Transformers: a `Trainer` whose workers may come and go while they train one model.

    trainer = ElasticTrainer(model=model, args=arguments, train_dataset=dataset)
    trainer.train()
    trainer.save_model("out")

The loop is that of `Trainer`. Its batches come from the ledger of the job, and its optimizer and schedule step when
all batches of a step are computed (`elasticai_api.pytorch.controller`). `global_step` and `epoch` are those of the
training, also in a worker that joins in the middle of it. A Trainer of another library gets the same by the mixin:
`class ElasticSFTTrainer(ElasticTrainerMixin, SFTTrainer)`.

Failure modes
    What a killed worker had computed of a step, the others compute; its replacement gets model, optimizer and schedule
    from them, and skips no batch. A drained worker ends the program after its step, by `Drained`. Only the oldest one
    writes checkpoints. Arguments that would need another ledger (gradient accumulation, `max_steps`,
    `resume_from_checkpoint`) are refused before the first batch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from transformers import Trainer, TrainerCallback

from elasticai_api.errors import ElasticError
from elasticai_api.pytorch.controller import ElasticController, create_elastic_controller


class ElasticCallback(TrainerCallback):  # type: ignore[misc]
    """Keeps the state of a `Trainer` at that of the elastic training. `ElasticTrainerMixin` adds it by itself."""

    def __init__(self, controller: ElasticController) -> None:
        self._controller = controller
        self._step = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._step = self._controller.step

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        # The Trainer adds one to it next.
        state.global_step = self._controller.step - 1

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        state.epoch = self._controller.progress
        if self._controller.step == self._step:
            # A batch that completes no step: what goes by steps was done at the last one.
            control.should_log = control.should_evaluate = control.should_save = False
        self._step = self._controller.step
        control.should_save &= self._controller.first
        if state.global_step >= state.max_steps:
            # The loader ends the training, when the others are known to have made the last step too.
            control.should_training_stop = False

    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        state.epoch = self._controller.progress
        control.should_save &= self._controller.first
        if self._controller.is_over:
            # A worker that joined late has seen fewer epochs than the Trainer counts.
            control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._controller.finish()


class _TeamLoader:
    """The `DataLoader` that a `Trainer` receives: iterated, it yields this worker's batches of the next epoch."""

    def __init__(self, controller: ElasticController, dataset: Any) -> None:
        self._controller = controller
        self.dataset = dataset

    def __len__(self) -> int:
        return self._controller.get_minibatch_count_per_epoch()

    def __iter__(self) -> Iterator[Any]:
        epoch = self._controller.next_epoch()
        return iter(()) if epoch is None else iter(epoch)


class ElasticTrainerMixin:
    """Makes a `Trainer` elastic: `class MyElasticTrainer(ElasticTrainerMixin, MyTrainer)`.

    Raises:
        elasticai_api.errors.ElasticError: An argument needs what an elastic training does not have.
    """

    # Attributes of the Trainer that this is mixed into.
    args: Any
    model: Any
    optimizer: Any
    control: Any
    train_dataset: Any
    data_collator: Any

    _controller: ElasticController | None = None

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        _check(self.args)
        # `train_batch_size` is already multiplied by the GPUs that a DataParallel would use; here it is one per worker.
        self._controller = create_elastic_controller(
            batch_size=self.args.per_device_train_batch_size,
            num_epochs=int(self.args.num_train_epochs),
            shuffle=True,
        )
        self._is_shared = False
        self._norm: Any = None
        self.add_callback(ElasticCallback(self.controller))  # type: ignore[attr-defined]

    @property
    def controller(self) -> ElasticController:
        """Returns the controller, which knows the team and the place in the training."""
        assert self._controller is not None
        return self._controller

    # -- the loop --------------------------------------------------------------------------------------------

    def train(self, resume_from_checkpoint: Any = None, *arguments: Any, **keywords: Any) -> Any:
        if resume_from_checkpoint:
            raise ElasticError(
                "resume_from_checkpoint: the job knows which batches are done, and a worker gets the model from the "
                "others. To begin with the model of a checkpoint, load it: Model.from_pretrained(checkpoint)."
            )
        if self._is_shared:
            raise ElasticError(
                "train() was called before: the epochs of this Trainer's data set are trained."
            )
        return super().train(*arguments, **keywords)  # type: ignore[misc]

    def get_train_dataloader(self) -> Any:
        dataset = self.train_dataset
        if dataset is None or not hasattr(dataset, "__len__"):
            raise ElasticError(
                "train_dataset: an elastic training needs a map-style data set, one with a length."
            )
        # The Trainer removes columns that the model does not take.
        collate = self.data_collator
        if type(dataset).__module__.split(".")[0] == "datasets":
            dataset = self._remove_unused_columns(dataset, description="Training")  # type: ignore[attr-defined]
        else:
            collate = self._get_collator_with_removed_columns(collate, description="Training")  # type: ignore[attr-defined]
        self.controller.load(
            dataset,
            collate_fn=collate,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory and torch.cuda.is_available(),
            prefetch_factor=self.args.dataloader_prefetch_factor,
        )
        return _TeamLoader(self.controller, dataset)

    def set_initial_training_values(self, args: Any, dataloader: Any, *more: Any) -> Any:
        self._is_shared = True
        self.create_optimizer()  # type: ignore[attr-defined]
        self.controller.set_broadcast_model(self.model)
        self.controller.set_broadcast_optimizer(self.optimizer)
        if args.max_grad_norm:
            self.controller.before_step(self._clip)
        found = super().set_initial_training_values(args, dataloader, *more)  # type: ignore[misc]
        epochs, _, examples, samples, batch_size, _, _ = found
        steps = self.controller.steps_per_epoch
        # How many batches of an epoch are this worker's is known when it has ended: see `get_batch_samples`.
        return epochs, sys.maxsize, examples, samples, batch_size, steps, epochs * steps

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        scheduler = super().create_scheduler(num_training_steps, optimizer)  # type: ignore[misc]
        self.controller.set_broadcast_scheduler(scheduler)
        return scheduler

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)  # type: ignore[misc]
        if not batches:
            self.control.should_epoch_stop = True
        return batches, items

    def training_step(self, *arguments: Any, **keywords: Any) -> Any:
        loss = super().training_step(*arguments, **keywords)  # type: ignore[misc]
        self.controller.report_loss(loss)
        return loss

    # -- gradients: clipped when those of all workers are there ----------------------------------------------

    def _clip(self) -> None:
        self._norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)

    def _clip_grad_norm(self, model: Any) -> Any:
        return self._norm

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        return self._norm

    # -- files: written by the oldest worker -----------------------------------------------------------------

    def is_world_process_zero(self) -> bool:
        # The Trainer's constructor asks before there is a controller.
        return super().is_world_process_zero() if self._controller is None else self._controller.first  # type: ignore[misc]

    def save_model(self, *arguments: Any, **keywords: Any) -> None:
        if self.controller.first:
            super().save_model(*arguments, **keywords)  # type: ignore[misc]


class ElasticTrainer(ElasticTrainerMixin, Trainer):  # type: ignore[misc]
    """A `transformers.Trainer`, with the same arguments, of which any number of workers train one model.

    Raises:
        elasticai_api.errors.ElasticError: An argument needs what an elastic training does not have.

    Example:
        >>> trainer = ElasticTrainer(model=model, args=arguments, train_dataset=dataset)
        >>> trainer.train()
    """


def _check(args: Any) -> None:
    if args.gradient_accumulation_steps != 1:
        raise ElasticError(
            "gradient_accumulation_steps: a step is already as many batches as the job was started with workers. Use "
            "--num_workers, or a larger per_device_train_batch_size."
        )
    if args.max_steps > 0:
        raise ElasticError("max_steps: the ledger counts epochs. Use num_train_epochs.")
    if args.num_train_epochs != int(args.num_train_epochs) or args.num_train_epochs < 1:
        raise ElasticError(f"num_train_epochs must be a whole number, not {args.num_train_epochs}.")
    if args.dataloader_drop_last:
        raise ElasticError("dataloader_drop_last: an epoch here has every sample of the data set.")
    if args.n_gpu > 1:
        raise ElasticError(
            "This process sees several GPUs. A worker trains on one: set CUDA_VISIBLE_DEVICES for each worker."
        )
