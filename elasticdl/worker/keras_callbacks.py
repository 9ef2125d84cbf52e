"""A definition's Keras callbacks, told what happens in a training that is not Keras's own.

They find what `fit` would give them: the model, its optimizer, `stop_training`, a history. What differs:

- Callbacks that write files or send data do so in one worker, the leader; in the others they are left out.
- `BackupAndRestore` is left out everywhere: checkpoints of the job do what it is for.
- Where the model lives on parameter servers, weights that a callback sets (`restore_best_weights`) are those of
  this worker alone.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

from elasticdl.jobs.errors import UserError
from elasticdl.worker.keras_errors import definition_error, program_error
from elasticdl.worker.trainer import CallbackRunner

log = logging.getLogger("elasticdl.worker")

_LEADERS_ONLY = {"TensorBoard", "ModelCheckpoint", "CSVLogger", "RemoteMonitor", "OrbaxCheckpoint"}
_NOWHERE = {"BackupAndRestore"}
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
        self, callbacks: list[Any], model: Any, *, leader: bool, epochs: int, directions: Mapping[str, str]
    ) -> None:
        self._model = model
        self._callbacks = []
        for callback in callbacks:
            kinds = {base.__name__ for base in type(callback).__mro__}
            if kinds & _NOWHERE:
                log.warning(
                    "BackupAndRestore is left out: the job keeps checkpoints itself (--checkpoint_dir)."
                )
            elif leader or not kinds & _LEADERS_ONLY:
                self._callbacks.append(callback)
        model.stop_training = False
        self._told = [*_history(model), *self._callbacks]
        for callback in self._told:
            _find_direction(callback, directions)
            self._call(callback, "set_params", {"verbose": 0, "epochs": epochs, "steps": None})
            self._call(callback, "set_model", model)

    def fire(self, event: str, *args: Any) -> None:
        if not self._callbacks:
            return
        if event == "on_train_batch_begin" and hasattr(self._model, "_train_counter"):
            # By this tf.keras's TensorBoard callback counts batches.
            self._model._train_counter.assign_add(1)
        for callback in self._told:
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
