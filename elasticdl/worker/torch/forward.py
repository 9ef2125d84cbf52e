"""The forward pass of a PyTorch model and its loss, with errors that name what does not fit.

The model is computed where its parameters are: a model function that returns `model.to("cuda")` trains there.

Failure modes
    The model or the loss fails on a batch: an error that describes the shapes. Memory is full: `MemoryError`, whatever
    PyTorch raises. A loss whose shapes would be broadcast, of which PyTorch only warns: an error at the first batch.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from elasticdl.errors import UserError
from elasticdl.jobs.zoo_import import users_traceback
from elasticdl.worker.definition import ProgramError, function_error
from elasticdl.worker.torch.input.collate import describe
from elasticdl.worker.torch.input.model_inputs import ModelInputs
from elasticdl.worker.trainer import Batch

_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
# PyTorch only warns of it: a loss of (n,) and (n, 1) is computed over n * n pairs, and trains nothing useful.
_BROADCAST = "Using a target size"


class Forward:
    """`loss`: the definition's function of labels and predictions."""

    def __init__(self, model: Any, loss: Callable[[Any, Any], Any]) -> None:
        self._model = model
        self._compute_loss = loss
        self._has_computed_loss = False
        self.inputs = ModelInputs(model.forward)
        parameter = next(model.parameters(), None)
        self.device = torch.device("cpu") if parameter is None else parameter.device

    def set_training(self, training: bool) -> None:
        # Visits all modules, so only when it changes.
        if self._model.training != training:
            self._model.train(training)

    def to_device(self, values: Any) -> Any:
        return values if self.device.type == "cpu" else _to_device(values, self.device)

    def arguments(self, batch: Batch) -> tuple[Any, Any]:
        """Returns positional and keyword arguments of the model."""
        return self.inputs.arguments(self.to_device(batch.features))

    def predict(self, batch: Batch) -> Any:
        arguments, keywords = self.arguments(batch)
        try:
            return self._model(*arguments, **keywords)
        except RuntimeError as error:
            if _is_out_of_memory(error):
                raise
            raise ProgramError(
                f"The model fails on features {describe(batch.features)}: {error}",
                traceback=users_traceback(error),
            ) from error

    def loss(self, labels: Any, predictions: Any) -> Any:
        """Returns the mean loss of a batch."""
        try:
            compute = self._compute_loss if self._has_computed_loss else self._first_loss
            loss = compute(labels, predictions)
        except (RuntimeError, ValueError, TypeError, IndexError, UserWarning) as error:
            if _is_out_of_memory(error):
                raise
            raise function_error(
                "The loss",
                error,
                given=f"labels {describe(labels)} and predictions {describe(predictions)}",
                hint="Change the feed, the model or the loss so that they fit together.",
            ) from error
        if not isinstance(loss, torch.Tensor):
            raise UserError(f"loss() returns {type(loss).__name__}, and should return a tensor.")
        return loss.mean() if loss.ndim else loss

    def _first_loss(self, labels: Any, predictions: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=_BROADCAST)
            loss = self._compute_loss(labels, predictions)
        self._has_computed_loss = True
        return loss

    def add_gradients(self, batch: Batch) -> Any:
        """Adds the gradients of the mean loss of a batch to those there are. Returns the loss."""
        self.set_training(True)
        loss = self.loss(self.to_device(batch.labels), self.predict(batch))
        if not loss.requires_grad:
            raise UserError(
                "The loss does not depend on the parameters of the model.",
                hint="Compute it from the predictions with PyTorch's functions, without detach() or NumPy.",
            )
        loss.backward()
        return loss.detach()


@contextlib.contextmanager
def memory_errors() -> Iterator[None]:
    """Raises `MemoryError` for the many errors by which PyTorch says that memory is full."""
    try:
        yield
    except RuntimeError as error:
        if _is_out_of_memory(error):
            raise MemoryError(str(error).splitlines()[0]) from error
        raise


def _is_out_of_memory(error: BaseException) -> bool:
    return any(text in str(error) for text in _NO_MEMORY)


def _to_device(values: Any, device: Any) -> Any:
    if isinstance(values, torch.Tensor):
        return values.to(device, non_blocking=True)
    if isinstance(values, Mapping):
        return {key: _to_device(value, device) for key, value in values.items()}
    if hasattr(values, "_fields"):
        return type(values)(*(_to_device(value, device) for value in values))
    if isinstance(values, (tuple, list)):
        return type(values)(_to_device(value, device) for value in values)
    return values
