"""Model definitions in PyTorch: any `nn.Module`, with `torch.optim` and plain functions around it.

The parts are beside this module: the feed and its batches (`input/`), the forward pass and the loss (`forward.py`),
optimizers and schedules (`optimizer.py`, `learning_rate_schedule.py`), values by name (`parameters.py`), metrics
(`metrics.py`), callbacks (`callbacks.py`) and exports (`export.py`). Here they come together as one trainer.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elasticdl.data.feeds import takes_columns
from elasticdl.data.reader import Reader
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.ps.embedding.row_requests import RowGradients, rows_are_finite
from elasticdl.torch import table_layers
from elasticdl.wire import ps_pb2
from elasticdl.worker.batching.batch_queue import BatchQueue, Pace
from elasticdl.worker.batching.column_batches import column_batches
from elasticdl.worker.batching.shard_batches import ShardBatches, Stop
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.environment import THREADS
from elasticdl.worker.model.embedding_offload import export_remarks
from elasticdl.worker.scoring.evaluation_metrics import EvaluationMetrics, outputs_by_name
from elasticdl.worker.table_layers import Tables
from elasticdl.worker.torch.embedding_offload import moved_sizes
from elasticdl.worker.torch.export import write_export
from elasticdl.worker.torch.forward import Forward, memory_errors
from elasticdl.worker.torch.input.collate import describe
from elasticdl.worker.torch.input.columns import make_tensors
from elasticdl.worker.torch.input.model_inputs import numbers_of
from elasticdl.worker.torch.input.pipeline import shard_batches
from elasticdl.worker.torch.learning_rate_schedule import Schedule
from elasticdl.worker.torch.optimizer import (
    check_options,
    group_options,
    held_by,
    load_added,
    load_slots,
    make_optimizer,
    server_config,
    slots,
)
from elasticdl.worker.torch.optimizer_hooks import check_steps, run_pre_hooks, step_with_rows
from elasticdl.worker.torch.parameters import ModelParameters, is_built, looks_closely, unchanged
from elasticdl.worker.torch.tensors import to_array
from elasticdl.worker.trainer import (
    Array,
    Batch,
    CallbackRunner,
    MetricStates,
    Parameters,
    Shard,
    Trainer,
)
from elasticdl.worker.training.definition_callbacks import DefinitionCallbacks

log = logging.getLogger("elasticdl.worker")


@dataclass(frozen=True, kw_only=True)
class _Learning:
    """The optimizer that the definition makes, and perhaps a schedule."""

    optimizer: Any
    schedule: Any
    rates: Schedule
    # The options of all groups of parameters, as servers received them.
    options: list[dict[str, Any]]


class TorchTrainer(Trainer):
    def __init__(self, model: Any, definition: ModelDefinition) -> None:
        threads = os.environ.get(THREADS)
        if threads:
            torch.set_num_threads(int(threads))
        self._model = model
        self._definition = definition
        self._forward = Forward(model, definition.loss)
        # Batches whose gradients were for servers.
        self._given_away = 0
        # Made when they are needed: the first when all parameters exist, the others if there is training and
        # evaluation at all.
        self._values: ModelParameters | None = None
        self._tables: Tables | None = None
        self._row_gradients: dict[str, RowGradients] = {}
        self._learning: _Learning | None = None
        # The part of a saved optimizer state for groups of parameters that callbacks have not added yet.
        self._saved_for_later: dict[str, Array] = {}
        self._scores: EvaluationMetrics | None = None

    # -- data ------------------------------------------------------------------------------------------------

    def batches(
        self, reader: Reader, shards: Iterable[Shard], *, mode: Mode, batch_size: int, max_bad_records: int
    ) -> BatchQueue:
        split = self._forward.inputs.split(mode)
        feed = self._definition.feed

        def make(shard: Shard, stop: Stop) -> Iterator[Batch]:
            skip_bad = max_bad_records > 0
            if takes_columns(feed):
                return column_batches(
                    reader=reader,
                    shard=shard,
                    feed=feed,
                    make=make_tensors(split),
                    mode=mode,
                    batch_size=batch_size,
                    skip_bad=skip_bad,
                    stop=stop,
                )
            return shard_batches(
                reader=reader,
                shard=shard,
                feed=feed,
                split=split,
                mode=mode,
                batch_size=batch_size,
                skip_bad=skip_bad,
                stop=stop,
            )

        # A worker computes with all the cores that are its own.
        shares_cores = self._forward.device.type == "cpu" and torch.get_num_threads() > 1
        return BatchQueue(ShardBatches(shards, make), pace=Pace(shares_cores=shares_cores))

    # -- computing -------------------------------------------------------------------------------------------

    def build(self, batch: Batch) -> None:
        if self._values is not None:
            return
        if not is_built(self._model):
            # Lazy modules take their shapes from what they see. In evaluation mode nothing else changes.
            with memory_errors(), torch.no_grad():
                self._forward.set_training(False)
                self._forward.predict(batch)
        self._values = ModelParameters(self._model)

    def train(self, batch: Batch, *, guarded: bool = False) -> float:
        self.build(batch)
        learning = self._learner()
        self._load_added(learning)
        with memory_errors():
            if isinstance(learning.optimizer, torch.optim.LBFGS):
                if guarded:
                    raise UserError(
                        "LBFGS computes the loss several times a step: no batch of it can be skipped.",
                        hint="Use another optimizer, or omit --max_bad_gradients.",
                    )
                # The one optimizer that computes the loss several times a step.
                loss = learning.optimizer.step(lambda: self._backward(batch))
            else:
                loss = self._backward(batch)
                rows = self.tables.take()
                if guarded and not (self._is_finite(loss) and rows_are_finite(rows)):
                    return math.nan
                rows = step_with_rows(learning.optimizer, self.tables.layers, rows)
                rows = self._trained_rows(rows, held_by(learning.optimizer))
                self.tables.update(rows, float(learning.optimizer.param_groups[0]["lr"]))
        learning.rates.step()
        return float(loss)

    def gradients(self, batch: Batch) -> tuple[float, dict[str, Array]]:
        self.build(batch)
        learning = self._learner()
        optimizer = learning.optimizer
        check_steps(optimizer)
        check_options(optimizer, learning.schedule, sent=learning.options)
        self._built().check_frozen()
        parameters = self._built().trainable
        self._given_away += 1
        closely = looks_closely(self._given_away)
        with memory_errors(), unchanged(parameters, closely=closely):
            loss = self._backward(batch)
        with memory_errors():
            rows = run_pre_hooks(optimizer, self.tables.layers, self.tables.take(), closely=closely)
        # The others have gradients too, which an optimizer that is not theirs would leave alone.
        held = held_by(optimizer)
        self._row_gradients = self._trained_rows(rows, held)
        gradients = self._built().gradients()
        return float(loss), {name: one for name, one in gradients.items() if id(parameters[name]) in held}

    def _trained_rows(self, rows: dict[str, RowGradients], held: set[int]) -> dict[str, RowGradients]:
        """Returns the gradients of tables that the optimizer trains."""
        trained = self._tables_of(held)
        return {table: found for table, found in rows.items() if table in trained}

    def _tables_of(self, held: set[int]) -> set[str]:
        return {table for table, layer in self.tables.layers if id(layer.handle) in held}

    def row_gradients(self) -> dict[str, RowGradients]:
        found, self._row_gradients = self._row_gradients, {}
        return found

    def features(self, batch: Batch) -> list[Array]:
        return numbers_of(batch.features)

    # For all-reduce: the step of `train` in its parts, with the gradients of others in between.

    def accumulate(self, batch: Batch) -> float:
        """Adds the gradients of the mean loss of a batch to those there are. Returns the loss."""
        self.build(batch)
        self._built().check_frozen()
        with memory_errors():
            loss = self._forward.add_gradients(batch)
        return float(loss)

    def apply(self) -> None:
        """A step of the optimizer with the gradients there are."""
        learning = self._learner()
        if isinstance(learning.optimizer, torch.optim.LBFGS):
            raise UserError(
                "LBFGS computes the loss several times a step, which workers that share a step cannot do.",
                hint="Use another optimizer, or train with --distribution_strategy=Local.",
            )
        self._load_added(learning)
        for parameter in self.shared_parameters():
            if not parameter.requires_grad:
                # Callbacks have frozen it since: optimizers go by gradients.
                parameter.grad = None
        with memory_errors():
            learning.optimizer.step()
        learning.rates.step()

    def spoil_gradients(self) -> None:
        """Has the sum over all members be NaN."""
        for parameter in self._built().trainable.values():
            if parameter.grad is not None:
                parameter.grad.fill_(math.nan)

    def gradients_are_finite(self) -> bool:
        """Whether no gradient has a NaN or an infinity in it."""
        gradients = [p.grad for p in self._built().trainable.values() if p.grad is not None]
        return all(_all_finite(one.coalesce().values() if one.is_sparse else one) for one in gradients)

    def _is_finite(self, loss: Any) -> bool:
        return math.isfinite(float(loss)) and self.gradients_are_finite()

    def shared_parameters(self) -> list[Any]:
        """Returns the parameters that have gradients, in the same order in every process."""
        return list(self._built().trainable.values())

    def shared_buffers(self) -> list[Any]:
        """Moving averages and the like."""
        return [b for b in self._model.buffers() if b.is_floating_point()]

    def evaluate(self, batch: Batch) -> None:
        with memory_errors(), torch.no_grad():
            self._forward.set_training(False)
            predictions = self._forward.predict(batch)
            labels = self._forward.to_device(batch.labels)
            loss = float(self._forward.loss(labels, predictions))
            self._metrics().add(labels, predictions, loss, batch.size)

    def take_metric_states(self) -> list[MetricStates]:
        return self._metrics().take()

    def metric_values(self, states: list[MetricStates]) -> dict[str, float]:
        return self._metrics().values(states)

    def predict(self, batch: Batch) -> dict[str, Array]:
        with memory_errors(), torch.no_grad():
            self._forward.set_training(False)
            outputs = outputs_by_name(self._forward.predict(batch))
        arrays = {
            str(name): to_array(value) for name, value in outputs.items() if isinstance(value, torch.Tensor)
        }
        for name, array in arrays.items():
            if array.ndim == 0 or len(array) != batch.size:
                raise UserError(
                    f"The model's {name} has shape {list(array.shape)} for a batch of {batch.size} samples.",
                    hint="The first axis of every output must be that of the samples.",
                )
        if not arrays:
            raise UserError(f"The model returns {describe(outputs)}, and no tensor.")
        return arrays

    # -- parameters ------------------------------------------------------------------------------------------

    def parameters(self) -> Parameters:
        return self._built().read()

    @property
    def tables(self) -> Tables:
        if self._tables is None:
            self._built()
            self._tables = Tables(table_layers(self._model))
        return self._tables

    @property
    def table_places(self) -> list[str]:
        """Returns the places of embeddings with tables in the model, which need not be built yet."""
        return [place for place, _ in table_layers(self._model)]

    def parameter_of_table(self, table: str) -> str:
        name = f"{table}.weight"
        return name if name in self._built().trainable else ""

    def state(self) -> dict[str, Array]:
        return self._built().read_state()

    def set_parameters(self, parameters: Parameters) -> None:
        self._built().write(parameters)

    def optimizer_config(self) -> ps_pb2.OptimizerConfig:
        learning = self._learner()
        return server_config(learning.optimizer, learning.schedule)

    def learning_rate(self, step: int) -> float:
        return self._learner().rates.rate(step)

    def optimizer_state(self) -> dict[str, Array]:
        """The optimizer's slots, and the place in the schedule."""
        learning = self._learner()
        steps = {"schedule/steps": np.array(learning.rates.steps)}
        return slots(learning.optimizer, self._built().names) | self._saved_for_later | steps

    def set_optimizer_state(self, state: Mapping[str, Array]) -> None:
        learning = self._learner()
        self._saved_for_later = load_slots(learning.optimizer, self._built().names, state)
        if "schedule/steps" in state:
            learning.rates.resume(int(state["schedule/steps"]))

    def _load_added(self, learning: _Learning) -> None:
        """Loads added groups before a step, after callbacks have run for it and for all steps before."""
        if self._saved_for_later:
            names, scheduled = self._built().names, learning.schedule is not None
            load_added(learning.optimizer, names, self._saved_for_later, scheduled=scheduled)
            self._saved_for_later = {}

    # -- around it -------------------------------------------------------------------------------------------

    def callbacks(self, *, leader: bool, epochs: int, resumed: bool = False) -> CallbackRunner:
        made = self._definition.callbacks() if self._definition.callbacks is not None else []
        return DefinitionCallbacks(
            made or [],
            model=self._model,
            optimizer=lambda: self._learner().optimizer,
            rates=lambda: self._learner().rates,
            leader=leader,
            epochs=epochs,
        )

    def export(self, path: Path, example: Batch) -> list[str]:
        self.build(example)
        self._forward.set_training(False)
        arguments, keywords = self._forward.arguments(example)
        lines = write_export(self._model, path, arguments, keywords, self.tables)
        return lines + export_remarks(moved_sizes(self._model))

    def output_processor(self) -> Callable[[Any, int], None] | None:
        return self._definition.output_processor()

    # -- inside ----------------------------------------------------------------------------------------------

    def _built(self) -> ModelParameters:
        if self._values is None:
            if not is_built(self._model):
                raise RuntimeError("the model has lazy parameters: build() it with a batch first")
            self.build(_NO_BATCH)
        assert self._values is not None
        return self._values

    def _learner(self) -> _Learning:
        if self._learning is None:
            self._built()
            optimizer, schedule = make_optimizer(self._definition.optimizer, self._model)
            self._learning = _Learning(
                optimizer=optimizer,
                schedule=schedule,
                rates=Schedule(optimizer, schedule),
                options=group_options(optimizer),
            )
            self._warn_of_untrained(held_by(optimizer))
        return self._learning

    def _warn_of_untrained(self, held: set[int]) -> None:
        trained = self._tables_of(held)
        names = [name for name, one in self._built().trainable.items() if id(one) not in held]
        names += [spec.name for spec in self.tables.specs if spec.name not in trained]
        if names:
            log.warning(
                "The optimizer of %s is not for %s: nothing changes them.",
                self._definition.name,
                ", ".join(names),
            )

    def _metrics(self) -> EvaluationMetrics:
        if self._scores is None:
            self._scores = EvaluationMetrics(self._definition.eval_metrics_fn)
        return self._scores

    def _backward(self, batch: Batch) -> Any:
        """Fresh gradients of the loss, which is returned."""
        self._built().forget_gradients()
        self.tables.forget()
        return self._forward.add_gradients(batch)


_NO_BATCH = Batch(
    shard=Shard(lease_id=0, epoch=0, start=0, end=0), position=0, atomic=False, last=True, size=0
)


def _all_finite(values: Any) -> bool:
    """A NaN or an infinity is in the sum, too, which costs less than looking at each. It may overflow without one."""
    return bool(torch.isfinite(values.sum())) or bool(torch.isfinite(values).all())
