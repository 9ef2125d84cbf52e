"""The trainer for Keras models: tf.keras of TensorFlow 2.15 and Keras 3 on TensorFlow.

The parts are in the modules beside this one: data (`pipeline.py`), computing (`graphs.py`), variables,
optimizer, metrics, callbacks, export. Here they are put together behind the interface of `trainer.py`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from elasticdl.data.feeds import takes_columns
from elasticdl.data.reader import Reader
from elasticdl.jobs.mode import Mode
from elasticdl.keras import table_layers
from elasticdl.ps.core.tensors import find_not_finite
from elasticdl.ps.embedding.row_requests import RowGradients, rows_are_finite
from elasticdl.wire import ps_pb2
from elasticdl.worker.batching.column_batches import column_batches
from elasticdl.worker.batching.shard_batches import ShardBatches, Stop
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.keras.callbacks import KerasCallbacks, make_callbacks
from elasticdl.worker.keras.embedding_offload import MovedEmbedding, check_read, move_large, moved_back
from elasticdl.worker.keras.export import export_model
from elasticdl.worker.keras.graphs import Forward, Step, Training
from elasticdl.worker.keras.input.columns import make_tensors
from elasticdl.worker.keras.input.feed_analysis import Feed
from elasticdl.worker.keras.input.pipeline import BatchStream
from elasticdl.worker.keras.metrics import EvaluationMetrics
from elasticdl.worker.keras.model_inspection import (
    check_backend,
    first_samples,
    has_variables,
    numeric_features,
)
from elasticdl.worker.keras.optimizer import KerasOptimizer
from elasticdl.worker.keras.table_lookup import as_ordinary
from elasticdl.worker.keras.variables import ModelVariables
from elasticdl.worker.model.embedding_offload import export_remarks
from elasticdl.worker.model.learning_rates import Rates
from elasticdl.worker.table_layers import Tables
from elasticdl.worker.trainer import Batch, CallbackRunner, MetricStates, Parameters, Shard, Trainer

Array = NDArray[Any]

# Before the name of a table among names of parameters, which begin with a number.
_ROWS = "table:"


class KerasTrainer(Trainer):
    def __init__(self, *, definition: ModelDefinition, model: Any, move_embeddings: int = 0) -> None:
        """Embeddings of at least `move_embeddings` bytes become tables; 0: none."""
        check_backend(model)
        self._move_embeddings = move_embeddings
        self._moved: list[MovedEmbedding] = []
        self.model = model
        self._definition = definition
        self._forward = Forward(model, definition.loss, name=definition.name)
        self._variables: ModelVariables | None = None
        self._tables: Tables | None = None
        self._row_gradients: dict[str, RowGradients] = {}
        self._optimizer: KerasOptimizer | None = None
        self._training: Training | None = None
        self._metrics: EvaluationMetrics | None = None
        self._evaluation: Step | None = None
        # Two samples of the first batch, to build by what has no shape before it has seen any.
        self._example: tuple[Any, Any] | None = None

    # -- data ------------------------------------------------------------------------------------------------

    def batches(
        self, reader: Reader, shards: Iterable[Shard], *, mode: Mode, batch_size: int, max_bad_records: int
    ) -> BatchStream | ShardBatches:
        """The iterator's `close` may be called from any thread."""
        feed = Feed(self._definition.feed, mode=mode, metadata=reader.metadata, name=self._definition.name)
        if takes_columns(self._definition.feed):

            def make(shard: Shard, stop: Stop) -> Iterator[Batch]:
                return column_batches(
                    reader=reader,
                    shard=shard,
                    feed=self._definition.feed,
                    make=make_tensors(feed, mode),
                    mode=mode,
                    batch_size=batch_size,
                    skip_bad=max_bad_records > 0,
                    stop=stop,
                )

            return ShardBatches(shards, make)
        return BatchStream(feed, reader, shards, batch_size=batch_size, skip_bad=max_bad_records > 0)

    # -- computing -------------------------------------------------------------------------------------------

    def build(self, batch: Batch) -> None:
        if self._variables is not None:
            return
        self._example = first_samples(2, batch.features), first_samples(2, batch.labels)
        if not has_variables(self.model):
            self._forward.build(batch.features, sample=first_samples(1, batch.features))
        self._variables = self._find_variables()

    def _find_variables(self) -> ModelVariables:
        for _, layer in table_layers(self.model):
            # A layer that some batches do not use, or none.
            if not layer.built:
                layer.build()
        found = ModelVariables(self.model)
        if not self._move_embeddings:
            return found
        self._moved, self.remarks = move_large(
            self.model,
            {id(variable): name for name, variable in found.trainable.items()},
            at_least=self._move_embeddings,
            is_training=lambda: self._forward.training,
        )
        return ModelVariables(self.model, without=self._elsewhere)

    @property
    def _elsewhere(self) -> set[int]:
        return {id(each.variable) for each in self._moved}

    def train(self, batch: Batch, *, guarded: bool = False) -> float:
        training = self._trained(batch)
        if not self.tables:
            step = training.train_guarded if guarded else training.train
            return float(step(batch.features, batch.labels))
        # The norm that gradients are clipped by is that of all of them, of whole parameters and of rows.
        loss, gradients = self._clipped(training, batch)
        if guarded and not self._is_finite(loss, gradients):
            self._row_gradients = {}
            return math.nan
        rate = self._optimized.learning_rate(int(self._optimized.native.iterations.numpy()))
        if gradients:
            given = (gradients.get(name) for name in self._known.trainable)
            training.apply([None if one is None else tf.convert_to_tensor(one) for one in given])
        else:
            # Schedules go on all the same.
            self._optimized.native.iterations.assign_add(1)
        self.tables.update(self.row_gradients(), rate)
        return loss

    def _is_finite(self, loss: float, gradients: Mapping[str, Array]) -> bool:
        dense_is_finite = math.isfinite(loss) and find_not_finite(gradients) is None
        return dense_is_finite and rows_are_finite(self._row_gradients)

    def gradients(self, batch: Batch) -> tuple[float, dict[str, Array]]:
        training = self._trained(batch)
        if self.tables:
            self._optimized.native.iterations.assign_add(1)
            return self._clipped(training, batch)
        loss, gradients = training.gradients(batch.features, batch.labels)
        return float(loss), self._by_name(gradients)

    def _by_name(self, gradients: list[Any]) -> dict[str, Array]:
        """Without variables that have no gradient."""
        pairs = zip(self._known.trainable, gradients, strict=True)
        return {name: gradient.numpy() for name, gradient in pairs if gradient is not None}

    def _clipped(self, training: Training, batch: Batch) -> tuple[float, dict[str, Array]]:
        """Returns the gradients of a model with tables, clipped together with those of rows."""
        self.tables.forget()
        loss, gradients = training.gradients(batch.features, batch.labels)
        rows = self.tables.take()
        dense = self._by_name(gradients)
        clipped = self._optimized.clip_arrays(
            {**dense, **{f"{_ROWS}{table}": found.values for table, found in rows.items()}}
        )
        self._row_gradients = {
            table: RowGradients(ids=found.ids, values=clipped[f"{_ROWS}{table}"])
            for table, found in rows.items()
        }
        return float(loss), {name: clipped[name] for name in dense}

    def row_gradients(self) -> dict[str, RowGradients]:
        found, self._row_gradients = self._row_gradients, {}
        return found

    def features(self, batch: Batch) -> list[Array]:
        return numeric_features(batch.features)

    def evaluate(self, batch: Batch) -> None:
        self.build(batch)
        metrics = self._evaluated
        if not metrics.prepared:
            metrics.prepare(batch.labels, self._forward.predict(batch.features))
        if self._evaluation is None:
            self._evaluation = Step(self._evaluate, what="Evaluation")
        loss, predictions = self._evaluation(batch.features, batch.labels)
        metrics.update(batch.labels, predictions, loss=float(loss), size=batch.size)

    def _evaluate(self, features: Any, labels: Any) -> tuple[Any, Any]:
        predictions = self._forward.forward(features)
        self._evaluated.update_in_graph(labels, predictions)
        return self._forward.loss(labels, predictions), predictions

    def take_metric_states(self) -> list[MetricStates]:
        return self._evaluated.take()

    def metric_values(self, states: list[MetricStates]) -> dict[str, float]:
        metrics = self._evaluated
        if not metrics.prepared and self._example is not None:
            features, labels = self._example
            metrics.prepare(labels, self._forward.predict(features))
        return metrics.values(states)

    def predict(self, batch: Batch) -> dict[str, Array]:
        self.build(batch)
        outputs = self._forward.predict(batch.features)
        if isinstance(outputs, Mapping):
            return {str(name): np.asarray(value) for name, value in outputs.items()}
        if not isinstance(outputs, tuple | list):
            return {"output": np.asarray(outputs)}
        names = list(getattr(self.model, "output_names", None) or [])
        if len(names) != len(outputs):
            names = [f"output_{index}" for index in range(len(outputs))]
        return {name: np.asarray(value) for name, value in zip(names, outputs, strict=True)}

    # -- parameters ------------------------------------------------------------------------------------------

    def parameters(self) -> Parameters:
        return self._known.read()

    @property
    def tables(self) -> Tables:
        if self._tables is None:
            assert self._known is not None
            self._tables = Tables(table_layers(self.model))
        return self._tables

    def parameter_of_table(self, table: str) -> str:
        return table if table in self._known.trainable else ""

    def state(self) -> dict[str, Array]:
        return self._known.read_state()

    def set_parameters(self, parameters: Parameters) -> None:
        self._known.write(parameters)

    def optimizer_config(self) -> ps_pb2.OptimizerConfig:
        return self._optimized.config(self._known.trainable)

    def learning_rate(self, step: int) -> float:
        return self._optimized.learning_rate(step)

    def optimizer_state(self) -> dict[str, Array]:
        return self._built_optimizer.state()

    def set_optimizer_state(self, state: Mapping[str, Array]) -> None:
        self._built_optimizer.set_state(state)

    # -- around it -------------------------------------------------------------------------------------------

    def callbacks(self, *, leader: bool, epochs: int, resumed: bool = False) -> CallbackRunner:
        callbacks = make_callbacks(self._definition.callbacks, name=self._definition.name)
        directions: dict[str, str] = {}
        rates: Rates | None = None
        if callbacks:
            # They look at model.optimizer, which `fit` would have found there.
            self.model.optimizer = self._optimized.native
            directions = self._evaluated.directions
            rates = self._optimized.rates
        return KerasCallbacks(
            callbacks,
            self.model,
            leader=leader,
            epochs=epochs,
            directions=directions,
            rates=rates,
            resumed=resumed,
        )

    def export(self, path: Path, example: Batch) -> list[str]:
        self.build(example)
        ordinary = as_ordinary(self.tables) if self.tables else contextlib.nullcontext()
        with ordinary, moved_back(self._moved, self.tables.own):
            lines = export_model(self.model, path, example.features, name=self._definition.name)
        return lines + export_remarks(each.size for each in self._moved)

    def output_processor(self) -> Callable[[Any, int], None] | None:
        return self._definition.output_processor()

    # -- parts that are made when they are first wanted ------------------------------------------------------

    @property
    def _known(self) -> ModelVariables:
        if self._variables is None:
            if not has_variables(self.model):
                raise RuntimeError("the model has not been built yet")
            self._variables = self._find_variables()
        return self._variables

    @property
    def _optimized(self) -> KerasOptimizer:
        if self._optimizer is None:
            self._optimizer = KerasOptimizer(self._definition.optimizer, name=self._definition.name)
        return self._optimizer

    @property
    def _built_optimizer(self) -> KerasOptimizer:
        optimizer = self._optimized
        optimizer.build(list(self._known.trainable.values()))
        return optimizer

    def _trained(self, batch: Batch) -> Training:
        if self._training is None:
            self.build(batch)
            self._training = Training(
                self._forward,
                self.model,
                self._built_optimizer,
                name=self._definition.name,
                variables=list(self._known.trainable.values()),
                handles=[layer.handle for _, layer in table_layers(self.model)],
                elsewhere=self._elsewhere,
                check_read=partial(check_read, self._moved),
            )
        else:
            self._training.follow()
        return self._training

    @property
    def _evaluated(self) -> EvaluationMetrics:
        if self._metrics is None:
            self._metrics = EvaluationMetrics(
                self._definition.eval_metrics_fn,
                output_names=getattr(self.model, "output_names", None) or [],
                name=self._definition.name,
            )
        return self._metrics
