"""Model definitions in Paddle: any `paddle.nn.Layer`, with `paddle.optimizer` and plain functions around it.

The parts are beside this module: batches of a feed (`batches.py`), the forward pass and the loss (`forward.py`),
optimizers, clipping and schedules (`optimizer.py`, `gradient_clip.py`, `learning_rate_schedule.py`), values by name
(`parameters.py`), callbacks (`callbacks.py`) and exports (`export.py`). Here they come together as one trainer.
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
import paddle

from elasticdl.data.feeds import takes_columns
from elasticdl.data.reader import Reader
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.paddle import table_layers
from elasticdl.ps.core.tensors import find_not_finite
from elasticdl.ps.embedding.row_requests import RowGradients, rows_are_finite
from elasticdl.wire import ps_pb2
from elasticdl.worker.batching.batch_queue import BatchQueue, Pace
from elasticdl.worker.batching.collate import describe
from elasticdl.worker.batching.column_batches import column_batches
from elasticdl.worker.batching.record_batches import shard_batches
from elasticdl.worker.batching.shard_batches import ShardBatches, Stop
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.environment import THREADS
from elasticdl.worker.model.embedding_offload import OffloadReport, Size
from elasticdl.worker.paddle.batches import collate, make_arrays, numbers_of, own_samples
from elasticdl.worker.paddle.export import write_export
from elasticdl.worker.paddle.forward import Forward, to_tensors
from elasticdl.worker.paddle.gradient_clip import clip_gradients, clips, step_clipped
from elasticdl.worker.paddle.learning_rate_schedule import Schedule
from elasticdl.worker.paddle.optimizer import held_by, load_slots, make_optimizer, server_config, slots
from elasticdl.worker.paddle.parameters import ModelParameters, looks_closely, unchanged
from elasticdl.worker.paddle.tensors import to_array
from elasticdl.worker.scoring.evaluation_metrics import EvaluationMetrics, outputs_by_name
from elasticdl.worker.table_layers import Tables
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
    """The optimizer that the definition makes, and its schedule."""

    optimizer: Any
    rates: Schedule


class PaddleTrainer(Trainer):
    def __init__(self, model: Any, definition: ModelDefinition, *, move_embeddings: int = 0) -> None:
        threads = os.environ.get(THREADS)
        if threads:
            paddle.base.core.set_num_threads(int(threads))
        if move_embeddings:
            self.remarks = _left_embeddings(model, at_least=move_embeddings)
        self._model = model
        self._definition = definition
        self._forward = Forward(model, definition.loss)
        # Batches whose gradients were for servers.
        self._given_away = 0
        # Made when they are needed: the last two if there is training and evaluation at all.
        self._values: ModelParameters | None = None
        self._tables: Tables | None = None
        self._row_gradients: dict[str, RowGradients] = {}
        self._learning: _Learning | None = None
        self._scores: EvaluationMetrics | None = None

    # -- data ------------------------------------------------------------------------------------------------

    def batches(
        self, reader: Reader, shards: Iterable[Shard], *, mode: Mode, batch_size: int, max_bad_records: int
    ) -> BatchQueue:
        split = self._forward.inputs.split(mode)
        feed = self._definition.feed
        skip_bad = max_bad_records > 0

        def make(shard: Shard, stop: Stop) -> Iterator[Batch]:
            if takes_columns(feed):
                return column_batches(
                    reader=reader,
                    shard=shard,
                    feed=feed,
                    make=make_arrays(split),
                    mode=mode,
                    batch_size=batch_size,
                    skip_bad=skip_bad,
                    stop=stop,
                )
            return shard_batches(
                reader=reader,
                shard=shard,
                feed=feed,
                collate=collate,
                split=split,
                own_samples=own_samples,
                mode=mode,
                batch_size=batch_size,
                skip_bad=skip_bad,
                stop=stop,
            )

        # By default, Paddle on a CPU computes with one thread.
        shares_cores = int(os.environ.get(THREADS) or 1) > 1
        return BatchQueue(ShardBatches(shards, make), pace=Pace(shares_cores=shares_cores))

    # -- computing -------------------------------------------------------------------------------------------

    def build(self, batch: Batch) -> None:
        # Layers of Paddle have their parameters from the beginning.
        self._built()

    def train(self, batch: Batch, *, guarded: bool = False) -> float:
        learning = self._learner()
        optimizer = learning.optimizer
        if isinstance(optimizer, paddle.optimizer.LBFGS):
            if guarded:
                raise UserError(
                    "LBFGS computes the loss several times a step: no batch of it can be skipped.",
                    hint="Use another optimizer, or omit --max_bad_gradients.",
                )
            # The one optimizer that computes the loss several times a step.
            loss = optimizer.step(lambda: self._backward(batch))
        else:
            loss = self._backward(batch)
            rows = self.tables.take()
            if guarded and not (self._is_finite(loss) and rows_are_finite(rows)):
                return math.nan
            rows = step_clipped(optimizer, self.tables.layers, rows)
            self.tables.update(self._trained_rows(rows, held_by(optimizer)), learning.rates.present)
        learning.rates.step()
        return float(loss)

    def gradients(self, batch: Batch) -> tuple[float, dict[str, Array]]:
        optimizer = self._learner().optimizer
        self._built().check_frozen()
        parameters = self._built().trainable
        self._given_away += 1
        with unchanged(parameters, closely=looks_closely(self._given_away)):
            loss = self._backward(batch)
        rows = self.tables.take()
        if clips(optimizer):
            rows = clip_gradients(optimizer, self.tables.layers, rows)
        # The others have gradients too, which an optimizer that is not theirs would leave alone.
        held = held_by(optimizer)
        self._row_gradients = self._trained_rows(rows, held)
        gradients = self._built().gradients()
        return float(loss), {name: one for name, one in gradients.items() if id(parameters[name]) in held}

    def _is_finite(self, loss: Any) -> bool:
        return math.isfinite(float(loss)) and find_not_finite(self._built().gradients()) is None

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

    def evaluate(self, batch: Batch) -> None:
        with paddle.no_grad():
            self._forward.set_training(False)
            predictions = self._forward.predict(batch)
            labels = to_tensors(batch.labels)
            loss = float(self._forward.loss(labels, predictions))
            self._metrics().add(labels, predictions, loss, batch.size)

    def take_metric_states(self) -> list[MetricStates]:
        return self._metrics().take()

    def metric_values(self, states: list[MetricStates]) -> dict[str, float]:
        return self._metrics().values(states)

    def predict(self, batch: Batch) -> dict[str, Array]:
        with paddle.no_grad():
            self._forward.set_training(False)
            outputs = outputs_by_name(self._forward.predict(batch))
        arrays = {
            str(name): to_array(value) for name, value in outputs.items() if isinstance(value, paddle.Tensor)
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
            self._tables = Tables(table_layers(self._model))
        return self._tables

    def parameter_of_table(self, table: str) -> str:
        name = f"{table}.weight"
        return name if name in self._built().trainable else ""

    def state(self) -> dict[str, Array]:
        return self._built().read_state()

    def set_parameters(self, parameters: Parameters) -> None:
        self._built().write(parameters)

    def optimizer_config(self) -> ps_pb2.OptimizerConfig:
        return server_config(self._learner().optimizer)

    def learning_rate(self, step: int) -> float:
        return self._learner().rates.rate(step)

    def optimizer_state(self) -> dict[str, Array]:
        """The optimizer's slots, and the place in the schedule."""
        learning = self._learner()
        steps = {"schedule/steps": np.array(learning.rates.steps)}
        return slots(learning.optimizer, self._built().names) | steps

    def set_optimizer_state(self, state: Mapping[str, Array]) -> None:
        learning = self._learner()
        load_slots(learning.optimizer, self._built().names, state)
        if "schedule/steps" in state:
            learning.rates.resume(int(state["schedule/steps"]))

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
        self._forward.set_training(False)
        arguments, keywords = self._forward.arguments(example)
        return write_export(self._model, path, arguments, keywords, self.tables)

    def output_processor(self) -> Callable[[Any, int], None] | None:
        return self._definition.output_processor()

    # -- inside ----------------------------------------------------------------------------------------------

    def _built(self) -> ModelParameters:
        if self._values is None:
            self._values = ModelParameters(self._model)
        return self._values

    def _learner(self) -> _Learning:
        if self._learning is None:
            self._built()
            optimizer = make_optimizer(self._definition.optimizer, self._model)
            self._learning = _Learning(optimizer=optimizer, rates=Schedule(optimizer))
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


def _left_embeddings(model: Any, *, at_least: int) -> list[str]:
    """Reports Paddle's embeddings of so many bytes, which cannot be moved to the servers."""
    report = OffloadReport()
    for name, layer in model.named_sublayers(include_self=True):
        if type(layer) is paddle.nn.Embedding:
            size = Size(name=name, rows=int(layer.weight.shape[0]), width=int(layer.weight.shape[1]))
            if 4 * size.rows * size.width >= at_least:
                report.left(size, "those of Paddle cannot be; use elasticdl.paddle.Embedding")
    return report.remarks()
