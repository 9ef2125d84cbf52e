"""Runs a definition's Keras callbacks in a training loop that is not Keras's own.

Callbacks have the attributes that `fit` sets: the model, its optimizer, `stop_training`, a history. The differences:

- Callbacks that write files or send data run in one worker, the leader, only. A definition's own callback does so with
  `writes_files = True`.
- A worker that begins in the middle of a training replays past events to its callbacks. They write nothing for these;
  and values that they keep of the model (`restore_best_weights`) are reset.
- `BackupAndRestore` never runs: the job's checkpoints replace it.
- Where the model lives on parameter servers, weights that a callback sets (`restore_best_weights`) are set in this
  worker only.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from elasticdl.errors import UserError
from elasticdl.worker.keras.errors import definition_error, program_error
from elasticdl.worker.model.learning_rates import Rates, rehearse
from elasticdl.worker.trainer import CallbackRunner, EndedEpoch

log = logging.getLogger("elasticdl.worker")

_LEADERS_ONLY = {"TensorBoard", "ModelCheckpoint", "CSVLogger", "RemoteMonitor", "OrbaxCheckpoint"}
# Those of them whose memory decides what they write.
_REMEMBERING = {"ModelCheckpoint"}
_NOWHERE = {"BackupAndRestore"}
_COUNTING = {"TensorBoard"}
# Where a callback is to find out by itself whether more is better, and the metric does not say.
_MORE_IS_BETTER = ("acc", "auc", "precision", "recall", "f1", "iou", "r2", "specificity", "sensitivity")


def make_callbacks(make: Callable[[], Any] | None, *, name: str) -> list[Any]:
    if make is None:
        return []
    try:
        given = make()
    except UserError:
        raise
    except Exception as error:
        raise definition_error(f"The function callbacks of {name} failed", error) from error
    if given is None:
        return []
    if not isinstance(given, list | tuple):
        raise UserError(f"The function callbacks of {name} returns a {type(given).__name__}, not a list.")
    return list(given)


class KerasCallbacks(CallbackRunner):
    def __init__(
        self,
        callbacks: list[Any],
        model: Any,
        *,
        leader: bool,
        epochs: int,
        directions: Mapping[str, str],
        rates: Rates | None = None,
        resumed: bool = False,
    ) -> None:
        self._model = model
        self._rates = rates
        self._callbacks = []
        for callback in callbacks:
            kinds = {base.__name__ for base in type(callback).__mro__}
            if kinds & _NOWHERE:
                log.warning(
                    "BackupAndRestore is left out: the job keeps checkpoints itself (--checkpoint_dir)."
                )
            elif leader or not _writes(callback):
                self._callbacks.append(callback)
                if resumed and "CSVLogger" in kinds:
                    # Else it would begin with an empty file.
                    callback.append = True
        model.stop_training = False
        self._notified = [*_history(model), *self._callbacks]
        # By this tf.keras's TensorBoard callback counts batches. To set it costs more than all else that is done here.
        watched = any(_is_a(callback, _COUNTING) for callback in self._callbacks)
        self._counter = getattr(model, "_train_counter", None) if watched else None
        for callback in self._notified:
            _find_direction(callback, directions)
            self._call(callback, "set_params", {"verbose": 0, "epochs": epochs, "steps": None})
            self._call(callback, "set_model", model)

    def fire(self, event: str, *args: Any) -> None:
        if not self._callbacks:
            return
        if event == "on_train_batch_begin" and self._counter is not None:
            self._counter.assign_add(1)
        self._tell(self._notified, event, *args)

    def catch_up(self, past: Sequence[EndedEpoch], epoch: int) -> None:
        if not self._callbacks:
            return
        hearing = [
            callback for callback in self._notified if not _writes(callback) or _is_a(callback, _REMEMBERING)
        ]
        still = _Still(self._model)
        verbosities = [getattr(callback, "verbose", 0) for callback in hearing]
        for callback in hearing:
            if _is_a(callback, _REMEMBERING):
                callback.set_model(still)
            if hasattr(callback, "verbose"):
                callback.verbose = 0

        def events() -> Iterator[Callable[[], None]]:
            for ended in past:
                yield partial(self._tell, hearing, "on_epoch_begin", ended.epoch, {})
                yield partial(self._tell, hearing, "on_epoch_end", ended.epoch, dict(ended.logs))
            for callback, verbosity in zip(hearing, verbosities, strict=True):
                if _is_a(callback, _REMEMBERING):
                    callback.set_model(self._model)
                if hasattr(callback, "verbose"):
                    callback.verbose = verbosity
                if getattr(callback, "best_weights", None) is not None:
                    # The present weights, which were not the best then.
                    callback.best_weights = None
            yield partial(self.fire, "on_epoch_begin", epoch, {})

        if self._rates is None:
            for event in events():
                event()
        else:
            rehearse(self._rates, events())

    def _tell(self, callbacks: list[Any], event: str, *args: Any) -> None:
        for callback in callbacks:
            self._call(callback, event, *args)

    def _call(self, callback: Any, event: str, *args: Any) -> None:
        method = getattr(callback, event, None)
        if method is None:
            return
        try:
            method(*args)
        except Exception as error:
            missing = type(error).__name__ == "TBNotInstalledError"
            raise program_error(
                f"The callback {type(callback).__name__} failed in {event}",
                error,
                hint="pip install tensorboard" if missing else "",
            ) from error

    @property
    def stop_training(self) -> bool:
        return bool(getattr(self._model, "stop_training", False))

    @property
    def empty(self) -> bool:
        return not self._callbacks


def _is_a(callback: Any, kinds: Collection[str]) -> bool:
    return any(base.__name__ in kinds for base in type(callback).__mro__)


def _writes(callback: Any) -> bool:
    return _is_a(callback, _LEADERS_ONLY) or bool(getattr(callback, "writes_files", False))


class _Still:
    """A model that does not let itself be saved: for a callback that is to learn what was best, and write nothing."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def save(self, *_: Any, **__: Any) -> None:
        return

    def save_weights(self, *_: Any, **__: Any) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _history(model: Any) -> list[Any]:
    """The callback that `fit` always adds; others look into it."""
    for base in type(model).__mro__:
        keras = sys.modules.get(base.__module__.partition(".")[0])
        if keras is not None and base.__name__ == "Model" and hasattr(keras, "callbacks"):
            return [keras.callbacks.History()]
    return []


def _find_direction(callback: Any, directions: Mapping[str, str]) -> None:
    """Keras 3 asks the metrics of a compiled model, and fails without them."""
    if getattr(callback, "mode", None) != "auto" or getattr(callback, "monitor_op", False) is not None:
        return
    metric = str(callback.monitor).removeprefix("val_")
    known = directions.get(metric)
    if known is None:
        known = "max" if any(word in metric.lower() for word in _MORE_IS_BETTER) else "min"
    callback.mode = known
