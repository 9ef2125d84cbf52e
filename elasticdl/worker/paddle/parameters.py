"""A Paddle model's values under stable names, as NumPy arrays, in and out.

Trainable are the parameters that want gradients, under the names of `named_parameters()`; a parameter that two layers
share has the first of its names and comes once. State is the rest of what `state_dict()` holds: frozen parameters,
among which Paddle counts moving averages, and buffers. Which is which is settled when the model is built, because
parameter servers learn it once.

What is trainable may be frozen later, and trained again: while it is frozen it has no gradient.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticdl.errors import UserError
from elasticdl.paddle import table_layers
from elasticdl.worker.paddle.tensors import copy_into, dense, gradient_of, to_array
from elasticdl.worker.trainer import Parameters, check_same_names

Array = NDArray[Any]


class ModelParameters:
    def __init__(self, model: Any) -> None:
        # A layer with its rows in a table has only a handle here.
        handles = {id(layer.handle) for _, layer in table_layers(model)}
        kept = set(model.state_dict())
        self._model = model
        self.trainable: dict[str, Any] = {}
        self._frozen: dict[str, Any] = {}
        for name, parameter in model.named_parameters():
            if id(parameter) not in handles:
                (self._frozen if parameter.stop_gradient else self.trainable)[name] = parameter
        self._buffers = [name for name, _ in model.named_buffers() if name in kept]
        # The name of a parameter in optimizers and messages.
        self.names = {id(parameter): name for name, parameter in (self.trainable | self._frozen).items()}

    @property
    def state(self) -> dict[str, Any]:
        # Layers may put another tensor in the place of a buffer, so these are looked up every time.
        buffers = dict(self._model.named_buffers()) if self._buffers else {}
        return self._frozen | {name: buffers[name] for name in self._buffers}

    def read(self) -> Parameters:
        return Parameters(
            trainable={name: to_array(tensor) for name, tensor in self.trainable.items()},
            state=self.read_state(),
        )

    def read_state(self) -> dict[str, Array]:
        return {name: to_array(tensor) for name, tensor in self.state.items()}

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
        it would stay as it is on servers.
        """
        thawed = [name for name, parameter in self._frozen.items() if not parameter.stop_gradient]
        if thawed:
            raise UserError(
                f"{', '.join(thawed)}: frozen when the model was made (stop_gradient), and to be trained by now. What "
                "several workers train is settled when the model is made.",
                hint="Let the model function return it as something that is trained, freeze it in a callback "
                "(on_train_begin), and let it be trained when its time comes; or train with "
                "--distribution_strategy=Local.",
            )

    def forget_gradients(self) -> None:
        # One worker alone may train by now what was frozen.
        for parameter in (*self.trainable.values(), *self._frozen.values()):
            parameter.clear_gradient(False)

    def gradients(self) -> dict[str, Array]:
        """Copies of the gradients. A parameter that took no part in the loss has none, and is left out, so that servers
        leave it as it is: a gradient of zeros would let momentum and weight decay go on with it, which Paddle does not.
        """
        found = {}
        for name, parameter in self.trainable.items():
            gradient = gradient_of(parameter)
            if gradient is not None:
                found[name] = dense(gradient)
        return found


@contextlib.contextmanager
def unchanged(parameters: Mapping[str, Any], *, closely: bool) -> Iterator[None]:
    """Checks that computing gradients for servers changes no parameter. Raises `UserError` if it does: the servers'
    parameters were not changed, and the next pull would undo it. Paddle does not count changes reliably, so all numbers
    are compared, if `closely`.
    """
    if not closely:
        yield
        return
    before = {name: _mark(parameter) for name, parameter in parameters.items()}
    yield
    changed = [name for name, parameter in parameters.items() if _mark(parameter) != before[name]]
    if changed:
        raise UserError(
            f"The model changes parameters while it computes: {', '.join(changed)}. Parameter servers have them, and "
            "do not hear of it.",
            hint="Compute with what is made of the parameter instead (scaled rows, parameter.clip()), or train with "
            "--distribution_strategy=Local.",
        )


def _mark(parameter: Any) -> int:
    return zlib.crc32(np.ascontiguousarray(parameter.numpy()).reshape(-1).view(np.uint8).data)


def looks_closely(batch: int) -> bool:
    """Whether to check a batch closely: the first, the second, the fourth, the eighth and so on. A model that changes
    its parameters does it in every batch, or from some time on; and comparing all of them each time would take as long
    as computing with them may.
    """
    return batch & (batch - 1) == 0


def _differences(own: Mapping[str, Any], given: Mapping[str, Array]) -> list[str]:
    # Once a batch where parameter servers are used: the long way is for when something differs.
    if own.keys() == given.keys() and all(
        own[name].shape == list(array.shape) for name, array in given.items()
    ):
        return []
    return check_same_names(own, given)
