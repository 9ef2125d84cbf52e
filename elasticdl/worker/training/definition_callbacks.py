"""Callbacks of model definitions in PyTorch and Paddle: Keras's events, without Keras.

`callbacks()` of a definition returns objects with any of the methods that Keras's callbacks have
(`on_train_begin(logs)`, `on_epoch_end(epoch, logs)`, `on_train_batch_end(batch, logs)` and so on). If they
have them, `set_model(model)`, `set_optimizer(optimizer)` and `set_params({"epochs": n})` are called first.
A callback ends the training with `model.stop_training = True` or `self.stop_training = True`. One that has
`writes_files = True` runs on one worker only, all others on every worker. A worker that begins in the middle of
a training tells them first of all epochs before, except those that write files.
"""

from __future__ import annotations

import abc
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from elasticdl.worker.model.learning_rates import Rates, rehearse
from elasticdl.worker.trainer import CallbackRunner, EndedEpoch


class DefinitionCallbacks(CallbackRunner):
    def __init__(
        self,
        callbacks: Iterable[Any],
        *,
        model: Any,
        optimizer: Callable[[], Any],
        rates: Callable[[], Rates],
        leader: bool,
        epochs: int,
    ) -> None:
        self._model = model
        self._rates = rates
        self._callbacks = [each for each in callbacks if leader or not getattr(each, "writes_files", False)]
        model.stop_training = False
        for callback in self._callbacks:
            if hasattr(callback, "set_model"):
                callback.set_model(model)
            if hasattr(callback, "set_optimizer"):
                callback.set_optimizer(optimizer())
            if hasattr(callback, "set_params"):
                callback.set_params({"epochs": epochs})

    def fire(self, event: str, *args: Any) -> None:
        self._tell(self._callbacks, event, *args)

    def catch_up(self, past: Sequence[EndedEpoch], epoch: int) -> None:
        hearing = [each for each in self._callbacks if not getattr(each, "writes_files", False)]

        def events() -> Iterator[Callable[[], None]]:
            for ended in past:
                yield partial(self._tell, hearing, "on_epoch_begin", ended.epoch, {})
                yield partial(self._tell, hearing, "on_epoch_end", ended.epoch, dict(ended.logs))
            yield partial(self.fire, "on_epoch_begin", epoch, {})

        rehearse(self._rates(), events())

    def _tell(self, callbacks: list[Any], event: str, *args: Any) -> None:
        for callback in callbacks:
            method = getattr(callback, event, None)
            if method is not None:
                method(*args)

    @property
    def stop_training(self) -> bool:
        return bool(self._model.stop_training) or any(
            getattr(each, "stop_training", False) for each in self._callbacks
        )

    @property
    def empty(self) -> bool:
        return not self._callbacks


class _Monitor:
    """Whether a metric of the logs got better."""

    def __init__(self, monitor: str, mode: str, min_delta: float) -> None:
        if mode not in ("auto", "min", "max"):
            raise ValueError(f"mode is auto, min or max, not {mode}")
        if mode == "auto":
            grows = ("acc", "auc", "precision", "recall", "f1")
            mode = "max" if any(word in monitor for word in grows) else "min"
        self._monitor = monitor
        self._sign = 1.0 if mode == "max" else -1.0
        self._min_delta = abs(min_delta)
        self._best = -math.inf

    def improved(self, logs: Mapping[str, float] | None) -> bool | None:
        """Whether the metric has improved; None if it is not there: there was no evaluation."""
        value = (logs or {}).get(self._monitor)
        if value is None:
            return None
        better = self._sign * value > self._best + self._min_delta
        if better:
            self._best = self._sign * value
        return better


class EarlyStopping:
    """Ends the training when a metric has not got better for more than `patience` epochs."""

    def __init__(
        self, monitor: str = "val_loss", *, patience: int = 0, mode: str = "auto", min_delta: float = 0.0
    ) -> None:
        self._metric = _Monitor(monitor, mode, min_delta)
        self._patience = patience
        self._waited = 0
        self.stop_training = False

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        improved = self._metric.improved(logs)
        if improved:
            self._waited = 0
        elif improved is False:
            self._waited += 1
            self.stop_training = self._waited > self._patience


class RateSetter(abc.ABC):
    """A callback that sets the learning rate of all parameters. How is the framework's affair."""

    def __init__(self) -> None:
        self._optimizer: Any = None

    def set_optimizer(self, optimizer: Any) -> None:
        self._optimizer = optimizer

    @abc.abstractmethod
    def read_rate(self) -> float: ...

    @abc.abstractmethod
    def write_rate(self, rate: float) -> None: ...


class RateOfEpoch(RateSetter):
    """The learning rate of each epoch from a function of (epoch) or of (epoch, present rate)."""

    def __init__(self, schedule: Callable[..., float]) -> None:
        super().__init__()
        self._schedule = schedule
        self._takes_rate = len(signature(schedule).parameters) > 1

    def on_epoch_begin(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        rate = self._schedule(epoch, self.read_rate()) if self._takes_rate else self._schedule(epoch)
        self.write_rate(float(rate))


class RateOnPlateau(RateSetter):
    """Multiplies the learning rate by `factor` when a metric has not got better for `patience` epochs."""

    def __init__(
        self,
        monitor: str = "val_loss",
        *,
        factor: float = 0.1,
        patience: int = 10,
        mode: str = "auto",
        min_delta: float = 1e-4,
        min_lr: float = 0.0,
    ) -> None:
        super().__init__()
        self._metric = _Monitor(monitor, mode, min_delta)
        self._factor = factor
        self._patience = patience
        self._least = min_lr
        self._waited = 0

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        improved = self._metric.improved(logs)
        if improved:
            self._waited = 0
        elif improved is False:
            self._waited += 1
            if self._waited >= self._patience:
                self.write_rate(max(self.read_rate() * self._factor, self._least))
                self._waited = 0


class TensorBoard:
    """Writes the numbers of every epoch for TensorBoard, without needing it installed."""

    writes_files = True

    def __init__(self, log_dir: str = "logs") -> None:
        self._folder = Path(log_dir)
        self._file: Any = None

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"events.out.tfevents.{int(time.time())}.{os.getpid()}"
        self._file = (self._folder / name).open("ab")
        self._write(file_version="brain.Event:2")

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        from elasticdl.wire.event_pb2 import Summary, SummaryValue

        values = [
            SummaryValue(tag=f"epoch_{name}", simple_value=value) for name, value in (logs or {}).items()
        ]
        self._write(step=epoch, summary=Summary(value=values))

    def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
        self._file.close()

    def _write(self, **fields: Any) -> None:
        from elasticdl.data.formats.tfrecord_frames import frame
        from elasticdl.wire.event_pb2 import Event

        self._file.write(frame(Event(wall_time=time.time(), **fields).SerializeToString()))
        self._file.flush()
