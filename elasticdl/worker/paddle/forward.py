"""The forward pass of a Paddle model and its loss, with errors that name what does not fit.

Batches are of NumPy arrays, and become tensors here.

Failure modes
    The model or the loss fails on a batch: an error that describes the shapes. Memory is full: `MemoryError`, which is
    what Paddle raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import paddle

from elasticdl.errors import UserError
from elasticdl.jobs.zoo_import import users_traceback
from elasticdl.worker.batching.collate import describe
from elasticdl.worker.batching.model_inputs import ModelInputs
from elasticdl.worker.definition import ProgramError, function_error
from elasticdl.worker.trainer import Batch

# Paddle's errors for shapes and types that do not fit.
_DOES_NOT_FIT = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, AssertionError)


class Forward:
    """`loss`: the definition's function of labels and predictions."""

    def __init__(self, model: Any, loss: Callable[[Any, Any], Any]) -> None:
        self._model = model
        self._compute_loss = loss
        self.inputs = ModelInputs(model.forward)

    def set_training(self, training: bool) -> None:
        # Visits all layers, so only when it changes.
        if self._model.training != training:
            if training:
                self._model.train()
            else:
                self._model.eval()

    def arguments(self, batch: Batch) -> tuple[Any, Any]:
        """Returns positional and keyword arguments of the model."""
        return self.inputs.arguments(to_tensors(batch.features))

    def predict(self, batch: Batch) -> Any:
        arguments, keywords = self.arguments(batch)
        try:
            return self._model(*arguments, **keywords)
        except (RuntimeError, ValueError) as error:
            raise ProgramError(
                f"The model fails on features {describe(batch.features)}: {last_line(error)}",
                traceback=users_traceback(error),
            ) from error

    def loss(self, labels: Any, predictions: Any) -> Any:
        """Returns the mean loss of a batch."""
        try:
            loss = self._compute_loss(labels, predictions)
        except (*_DOES_NOT_FIT, OSError) as error:
            if _is_of_system(error):
                raise
            raise _misfit(labels, predictions, error) from error
        if not isinstance(loss, paddle.Tensor):
            raise UserError(f"loss() returns {type(loss).__name__}, and should return a tensor.")
        return loss.mean() if loss.size != 1 or loss.ndim else loss

    def add_gradients(self, batch: Batch) -> Any:
        """Adds the gradients of the mean loss of a batch to those there are. Returns the loss."""
        self.set_training(True)
        labels, predictions = to_tensors(batch.labels), self.predict(batch)
        loss = self.loss(labels, predictions)
        if loss.stop_gradient:
            raise UserError(
                "The loss does not depend on the parameters of the model.",
                hint="Compute it from the predictions with Paddle's functions, without detach() or NumPy.",
            )
        try:
            loss.backward()
        except (NotImplementedError, OSError) as error:
            if _is_of_system(error):
                raise
            raise _misfit(labels, predictions, error) from error
        return loss


def _is_of_system(error: Exception) -> bool:
    """Whether an error is one of files or networks. Paddle raises an OSError for a type that a kernel lacks, too."""
    return isinstance(error, OSError) and error.errno is not None


def _misfit(labels: Any, predictions: Any, error: Exception) -> UserError:
    given = f"labels {describe(labels)} and predictions {describe(predictions)}"
    hint = "Change the feed, the model or the loss so that they fit together."
    if isinstance(error, (NotImplementedError, OSError)):
        # A kernel that lacks the type.
        return UserError(f"The loss does not fit {given}: {last_line(error)}", hint=hint)
    return function_error("The loss", error, given=given, summary=last_line(error), hint=hint)


def to_tensors(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return paddle.to_tensor(values)
    if isinstance(values, Mapping):
        return {key: to_tensors(value) for key, value in values.items()}
    if hasattr(values, "_fields"):
        return type(values)(*(to_tensors(value) for value in values))
    if isinstance(values, (tuple, list)) and not any(isinstance(each, (str, bytes)) for each in values):
        return type(values)(to_tensors(value) for value in values)
    return values


def last_line(error: BaseException) -> str:
    """Returns the message of an error, without the pages of Paddle's own frames."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Where in Paddle's sources it was found is no help.
    lines = [line for line in lines if not line.startswith("[/paddle/")]
    wrong = [line for line in lines if "Error:" in line or line.startswith("(")]
    return (wrong or lines or [type(error).__name__])[0 if wrong else -1]
