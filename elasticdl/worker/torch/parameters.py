"""A PyTorch model's values under stable names, as NumPy arrays, in and out.

Trainable are the parameters that want gradients, under the names of `named_parameters()`; a parameter that two
modules share has the first of its names and comes once. State is the rest of what `state_dict()` holds: frozen
parameters, and buffers (moving averages, counts of batches). Which is which is settled when the model is built,
because parameter servers learn it once, and workers that add up their gradients agree once on what is added up.

What is trainable may be frozen later, and trained again: while it is frozen it has no gradient.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.nn.parameter import is_lazy

from elasticdl.errors import UserError
from elasticdl.torch import table_layers
from elasticdl.worker.torch.tensors import copy_into, to_array
from elasticdl.worker.trainer import Parameters, check_same_names

Array = NDArray[Any]


def is_built(model: Any) -> bool:
    """Whether all parameters have their shapes. Those of lazy modules get them with the first batch."""
    return not any(is_lazy(value) for value in (*model.parameters(), *model.buffers()))


class ModelParameters:
    """The values of a model that is built."""

    def __init__(self, model: Any) -> None:
        # A layer with its rows in a table has only a handle here, without numbers.
        handles = {id(layer.handle) for _, layer in table_layers(model)}
        kept = set(model.state_dict())
        self._model = model
        self.trainable: dict[str, Any] = {}
        self._frozen: dict[str, Any] = {}
        for name, parameter in model.named_parameters():
            if id(parameter) in handles:
                continue
            (self.trainable if parameter.requires_grad else self._frozen)[name] = parameter
        self._buffers = [name for name, _ in model.named_buffers() if name in kept]
        # The name of a parameter in optimizers and messages.
        self.names = {
            id(parameter): name
            for name, parameter in model.named_parameters()
            if id(parameter) not in handles
        }

    @property
    def state(self) -> dict[str, Any]:
        # Modules may put another tensor in the place of a buffer, so these are looked up every time.
        buffers = dict(self._model.named_buffers())
        return self._frozen | {name: buffers[name] for name in self._buffers}

    def read(self) -> Parameters:
        return Parameters(
            trainable={name: to_array(tensor).copy() for name, tensor in self.trainable.items()},
            state=self.read_state(),
        )

    def read_state(self) -> dict[str, Array]:
        return {name: to_array(tensor).copy() for name, tensor in self.state.items()}

    def write(self, values: Parameters) -> None:
        state = self.state
        problems = _differences(self.trainable, values.trainable) + _differences(state, values.state)
        if problems:
            shown = "\n".join(problems[:10]) + (
                f"\nand {len(problems) - 10} more" if len(problems) > 10 else ""
            )
            raise UserError(f"These values are of another model:\n{shown}")
        for name, array in values.trainable.items():
            copy_into(self.trainable[name], array)
        for name, array in values.state.items():
            copy_into(state[name], array)

    def check_frozen(self) -> None:
        """Raises `UserError` if something wants gradients by now that was frozen when it was settled what is trained:
        it would stay as it is on servers, and become another one in each worker of all-reduce.
        """
        thawed = [name for name, parameter in self._frozen.items() if parameter.requires_grad]
        if thawed:
            raise UserError(
                f"{', '.join(thawed)}: frozen when the model was made (requires_grad), and to be trained by now. What "
                "several workers train is settled when the model is made.",
                hint="Let the model function return it as something that is trained, freeze it in a callback "
                "(on_train_begin), and let it be trained when its time comes; or train with "
                "--distribution_strategy=Local.",
            )

    def forget_gradients(self) -> None:
        # One worker alone may train by now what was frozen.
        for parameter in (*self.trainable.values(), *self._frozen.values()):
            parameter.grad = None

    def gradients(self) -> dict[str, Array]:
        """The gradients as they are in memory: `forget_gradients` drops it, the next ones are allocated again.

        A parameter that took no part in the loss has none. It is left out, so that servers leave it as it is: a
        gradient of zeros would let momentum and weight decay go on with it, which PyTorch does not.
        """
        return {
            name: to_array(parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad)
            for name, parameter in self.trainable.items()
            if parameter.grad is not None
        }


@contextlib.contextmanager
def unchanged(parameters: Mapping[str, Any], *, closely: bool) -> Iterator[None]:
    """Checks that computing gradients for servers changes no parameter. Raises `UserError` if it does: the servers'
    parameters were not changed, and the next pull would undo it.
    """
    changes = watch(parameters, closely=closely)
    yield
    changed = changes()
    if changed:
        raise UserError(
            f"The model changes parameters while it computes: {', '.join(changed)}. Parameter servers have them, and "
            "do not hear of it.",
            hint="An embedding with max_norm does that, and so does parameter.data.clamp_(): compute with what is "
            "made of the parameter instead (scaled rows, parameter.clamp()), or train with "
            "--distribution_strategy=Local.",
        )


def watch(parameters: Mapping[str, Any], *, closely: bool) -> Callable[[], list[str]]:
    """A function that tells which of them were changed since. PyTorch counts changes, but not those by way of `.data`
    or NumPy, which it takes to read all numbers (`closely`).
    """
    before = {name: _mark(parameter, closely=closely) for name, parameter in parameters.items()}
    return lambda: [name for name, one in parameters.items() if _mark(one, closely=closely) != before[name]]


def _mark(parameter: Any, *, closely: bool) -> tuple[int, int]:
    if not closely:
        return parameter._version, 0
    numbers = np.ascontiguousarray(to_array(parameter))
    return parameter._version, zlib.crc32(numbers.reshape(-1).view(np.uint8).data)


def looks_closely(batch: int) -> bool:
    """Whether to check a batch closely: the first, the second, the fourth, the eighth and so on. A model that changes
    its parameters does it in every batch, or from some time on, as when they have become too large; and comparing all
    of them each time would take as long as computing with them may.
    """
    return batch & (batch - 1) == 0


def _differences(own: Mapping[str, Any], given: Mapping[str, Array]) -> list[str]:
    # Once a batch where parameter servers are used: the long way is for when something differs.
    if own.keys() == given.keys() and all(own[name].shape == array.shape for name, array in given.items()):
        return []
    return check_same_names(own, given)
