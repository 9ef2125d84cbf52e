"""The parameters of one server that are arrays of a fixed shape, with their optimizer slots.

Copies for evaluation and checkpoints cost nothing when they are made: they share the arrays, and a parameter
with other readers is copied just before its next update (copy-on-write). State (moving averages and
the like) has no optimizer: it is replaced, never changed, by what the last worker sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.resharding import STATE, TRAINABLE
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.optimizers import Optimizer, Slots

# Groups of a snapshot, beside `trainable` and `state`: one for each kind of slot, and the sums of gradients
# that wait for more in synchronous training.
SLOT_PREFIX = "slot:"
PENDING = "pending"

# Numbers of a gradient that is added up in place, and how many of them at a time: these stay in the processor's cache.
_LARGE, _PART = 1 << 21, 1 << 17


class DenseParameters:
    """The dense parameters of a server. Not thread-safe."""

    def __init__(self, trainable: Mapping[str, Array], state: Mapping[str, Array]) -> None:
        """Takes the arrays as its own: they will be changed."""
        self.values: dict[str, Array] = {}
        self.state: dict[str, Array] = {}
        self.slots: dict[str, Slots] = {}
        self.pending: dict[str, Array] = {}
        self._optimizer: Optimizer | None = None
        # Parameters whose arrays have no other reader.
        self._own: set[str] = set()
        self.take({TRAINABLE: trainable, STATE: state})

    def take(self, groups: Mapping[str, Mapping[str, Array]]) -> None:
        """Takes in what `groups` gave, as its own. Parameters that come without slots get new ones."""
        values = groups.get(TRAINABLE, {})
        for name, value in values.items():
            if value.dtype.kind != "f":
                raise UserError(
                    f"{name} is of {value.dtype.name}: only floating-point parameters can be trained."
                )
        self.values |= values
        self.state |= groups.get(STATE, {})
        self.pending |= {name: array for name, array in groups.get(PENDING, {}).items() if name in values}
        for name, value in values.items():
            self.slots[name] = {
                group.removeprefix(SLOT_PREFIX): members[name]
                for group, members in groups.items()
                if group.startswith(SLOT_PREFIX) and name in members
            }
            if self._optimizer is not None and not self.slots[name]:
                self.slots[name] = self._optimizer.slots(name, value)
            self._own.add(name)

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            for arrays in (self.values, self.state, self.slots, self.pending):
                arrays.pop(name, None)
            self._own.discard(name)

    def groups(self, names: Iterable[str] | None = None) -> dict[str, dict[str, Array]]:
        """All arrays, or those of some names, as they are now; later updates leave these alone."""
        wanted = set(names) if names is not None else {*self.values, *self.state}
        groups: dict[str, dict[str, Array]] = {
            TRAINABLE: {name: value for name, value in self.values.items() if name in wanted},
            STATE: {name: value for name, value in self.state.items() if name in wanted},
        }
        for name, slots in self.slots.items():
            if name in wanted:
                for slot, array in slots.items():
                    groups.setdefault(f"{SLOT_PREFIX}{slot}", {})[name] = array
        pending = {name: value for name, value in self.pending.items() if name in wanted}
        if pending:
            groups[PENDING] = pending
        self._own -= wanted
        return groups

    @property
    def bytes(self) -> int:
        """Returns the bytes of all arrays, with slots."""
        slots = (array for arrays in self.slots.values() for array in arrays.values())
        return sum(
            array.nbytes
            for arrays in (self.values.values(), self.state.values(), self.pending.values(), slots)
            for array in arrays
        )

    @property
    def has_optimizer(self) -> bool:
        return self._optimizer is not None

    def use_optimizer(self, optimizer: Optimizer) -> bool:
        """Replaces the optimizer. Returns whether it can use the present slots."""
        self._optimizer = optimizer
        fresh = {name: optimizer.slots(name, value) for name, value in self.values.items()}
        if all(_same_form(self.slots[name], slots) for name, slots in fresh.items()):
            return True
        self.slots = fresh
        return False

    def check(self, gradients: Mapping[str, Array], state: Mapping[str, Array]) -> None:
        """Raises `UserError` if these are not of this model."""
        for name, gradient in gradients.items():
            _check_form("The gradient of", name, gradient, self.values.get(name), same_dtype=False)
        for name, value in state.items():
            _check_form("The state", name, value, self.state.get(name), same_dtype=True)

    def set_state(self, state: Mapping[str, Array]) -> None:
        # Copied, because these are views of a whole message.
        self.state.update({name: np.array(value) for name, value in state.items()})

    def apply(self, gradients: Mapping[str, Array], learning_rate: float, step: int) -> None:
        if self._optimizer is None:
            raise ValueError("there is no optimizer")
        # All copies first: if there is no memory for them, nothing has been updated yet.
        self._make_own(gradients)
        for name, gradient in gradients.items():
            self._optimizer.apply(name, self.values[name], gradient, self.slots[name], learning_rate, step)

    def add_pending(self, gradients: Mapping[str, Array]) -> None:
        for name, gradient in gradients.items():
            if name in self.pending:
                # In place only where the old array has no reader.
                add = _add if name in self._own else _sum
                self.pending[name] = add(self.pending[name], gradient)
            else:
                # A sum of few float16 may be too large for one, and of many loses the small ones.
                kind = np.promote_types(self.values[name].dtype, np.float32)
                self.pending[name] = np.array(gradient, dtype=kind)

    def apply_pending(self, names: Iterable[str], count: int, learning_rate: float, step: int) -> None:
        """Updates some parameters once with the mean of so many gradients."""
        chosen = list(names)
        self._make_own(chosen)
        gradients = {name: self.pending[name] for name in chosen}
        for gradient in gradients.values():
            np.divide(gradient, count, out=gradient)
        self.apply(gradients, learning_rate, step)
        for name in chosen:
            del self.pending[name]

    def _make_own(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._own:
                self.values[name] = self.values[name].copy()
                self.slots[name] = {slot: array.copy() for slot, array in self.slots[name].items()}
                if name in self.pending:
                    self.pending[name] = self.pending[name].copy()
                self._own.add(name)


def _sum(waiting: Array, gradient: Array) -> Array:
    """Wider than they are if need be: a sum may be too large for float32 where the mean is not."""
    try:
        with np.errstate(over="raise"):
            return np.asarray(np.add(waiting, gradient))
    except FloatingPointError:
        return np.asarray(np.add(waiting, gradient, dtype=np.float64))


def _add(waiting: Array, gradient: Array) -> Array:
    """The same. Large ones in place: new memory with every gradient costs more than the sum.

    Part by part, for that a sum is too large is known only when it has been written: until then a part is as it was.
    """
    fits = np.result_type(waiting, gradient) == waiting.dtype and waiting.flags.c_contiguous
    if waiting.size < _LARGE or not fits:
        return _sum(waiting, gradient)
    sums, given = waiting.reshape(-1), gradient.reshape(-1)
    added = np.empty(_PART, waiting.dtype)
    start = 0
    try:
        with np.errstate(over="raise"):
            for start in range(0, len(sums), _PART):
                part = sums[start : start + _PART]
                np.add(part, given[start : start + _PART], out=added[: len(part)])
                part[:] = added[: len(part)]
    except FloatingPointError:
        wider = sums.astype(np.float64)
        wider[start:] += given[start:]
        return wider.reshape(waiting.shape)
    return waiting


def differences(held: Mapping[str, Array], given: Mapping[str, Array]) -> list[str]:
    """Describes the differences between a worker's parameters and the server's, a line each."""
    problems = [f"{name} is not in the model" for name in held if name not in given]
    problems += [f"{name} is only in the model" for name in given if name not in held]
    problems += [
        f"{name} is {_form(value)}, in the model {_form(given[name])}"
        for name, value in held.items()
        if name in given and _form(value) != _form(given[name])
    ]
    return problems


def _form(array: Array) -> str:
    return f"{array.dtype.name}{list(array.shape)}"


def _same_form(left: Mapping[str, Array], right: Mapping[str, Array]) -> bool:
    return left.keys() == right.keys() and all(_form(left[key]) == _form(right[key]) for key in left)


def _check_form(what: str, name: str, given: Array, held: Array | None, *, same_dtype: bool) -> None:
    if held is None:
        raise UserError(f"{what} {name} is for no parameter of this server.")
    if given.shape != held.shape:
        raise UserError(f"{what} {name} has shape {list(given.shape)}, {name} itself {list(held.shape)}.")
    fits = given.dtype == held.dtype if same_dtype else given.dtype.kind == "f"
    if not fits:
        raise UserError(f"{what} {name} is of {given.dtype.name}, {name} itself of {held.dtype.name}.")
