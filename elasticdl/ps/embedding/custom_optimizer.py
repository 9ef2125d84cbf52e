"""Optimizers of the user's own, in NumPy: `elasticdl.Optimizer`, and how a server comes by one.

    class SignSGD(elasticdl.Optimizer):
        slots = {"velocity": 0.0}

        def __init__(self, learning_rate=0.01, momentum=0.9):
            super().__init__(learning_rate)
            self.momentum = momentum

        def update(self, value, gradient, slots, learning_rate, step):
            slots["velocity"] = self.momentum * slots["velocity"] + gradient
            return value - learning_rate * np.sign(slots["velocity"])

A worker tells the servers the name of the class and the numbers that it was made with. They import that class from the
zoo folder of their own job, and from nowhere else: nothing that comes over the network is executed.

The same calls come to the same numbers on every server, so a copy of a bucket stays equal to it: as long as `update`
uses nothing but what it is given (no clock, no chance, nothing that it remembers elsewhere than in its slots).

And as long as all have the same file: one that is edited while the job runs would be another for servers that start
later. So the checksum of the file travels with the name, and a server that finds another file refuses it.
"""

from __future__ import annotations

import abc
import hashlib
import inspect
import math
import re
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from elasticdl.errors import UserError
from elasticdl.jobs.zoo_import import import_from_zoo, users_traceback
from elasticdl.ps.core.tensors import Array
from elasticdl.wire import ps_pb2

# The value of `OptimizerConfig.flavor` instead of a framework.
PYTHON = "python"
# As many as the kernels have room for.
MOST_SLOTS = 8
# NumPy's kinds: truth values, integers and floating-point numbers.
_REAL_NUMBERS = "biuf"
# Comes with every push, and is nothing that an optimizer has to be made with.
_RATE = "learning_rate"
# A thread that needs a module under import by another thread waits until the import is complete.
_IMPORTING = threading.RLock()
_NAME = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*)")


class OptimizerNotFound(UserError):
    """An optimizer of the user's own is not where it should be."""


class OptimizerChanged(OptimizerNotFound):
    """The file of an optimizer differs from the one that other processes have loaded."""


class Optimizer(abc.ABC):
    """To be derived from. All that an optimizer has to know are numbers that its class is called with."""

    # The slots of every number of a parameter, by name, and their initial values.
    slots: Mapping[str, float] = {}
    learning_rate: Any
    _given: tuple[tuple[Any, ...], dict[str, Any]]
    # The checksum of the file that the class is from, as it was when the class was made; empty: unknown.
    _source = ""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # Now, while its module is imported: the file may be edited later.
        cls._source = _checksum(cls.__module__)

    def __new__(cls, *args: Any, **options: Any) -> Optimizer:
        made = super().__new__(cls)
        # Around whatever the class itself makes of attributes: it may be a frozen dataclass.
        object.__setattr__(made, "_given", (args, options))
        return made

    def __init__(self, learning_rate: Any = 0.01) -> None:
        self.learning_rate = learning_rate

    @abc.abstractmethod
    def update(
        self, value: Array, gradient: Array, slots: dict[str, Array], learning_rate: float, step: Any
    ) -> Array:
        """The new value. New values of slots are put into `slots`; all arrays are the callee's to change.

        A whole parameter: all arrays have its shape, and `step` tells how often it has been updated, from 1 on. Rows of
        a table: all arrays are [rows, width], and `step` is [rows, 1], since rows are counted one by one.
        """


def to_config(optimizer: Optimizer) -> ps_pb2.OptimizerConfig:
    """Describes an optimizer for servers. Raises `UserError` if they could not make the same one."""
    kind = type(optimizer)
    name = f"{kind.__module__}:{kind.__qualname__}"
    if not _NAME.fullmatch(name):
        raise UserError(
            f"The optimizer {kind.__qualname__} is made inside of a function, where other nodes cannot import it.",
            hint="Define its class at the top of a module of the model zoo.",
        )
    return ps_pb2.OptimizerConfig(
        name=name, flavor=PYTHON, options=_options(optimizer), source=source_of(kind)
    )


def source_of(kind: type[Optimizer]) -> str:
    """A checksum of the file of a class, and of those that it is derived from."""
    known = [each._source for each in kind.__mro__ if issubclass(each, Optimizer) and each is not Optimizer]
    return hashlib.sha256("".join(known).encode()).hexdigest() if all(known) else ""


def _checksum(module: str) -> str:
    file = getattr(sys.modules.get(module), "__file__", None)
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
    except OSError:
        # From an archive, or from nowhere.
        return ""


def _options(optimizer: Optimizer) -> dict[str, float]:
    positional, named = optimizer._given
    signature = inspect.signature(type(optimizer).__init__)
    bound = signature.bind(optimizer, *positional, **named)
    options: dict[str, float] = {}
    for name, value in [*bound.arguments.items()][1:]:
        parameter = signature.parameters[name]
        given = value if parameter.kind is parameter.VAR_KEYWORD else {name: value}
        for key, one in given.items():
            if key == _RATE or one is parameter.default:
                continue
            if not isinstance(one, (bool, int, float, np.number)) or not math.isfinite(one):
                raise UserError(
                    f"The optimizer {type(optimizer).__name__} is made with {key}={one!r}: it must be a number.",
                    hint="Parameter servers rebuild it, from the numbers that it was made with.",
                )
            options[key] = float(one)
    return options


def of_config(config: ps_pb2.OptimizerConfig, model_zoo: str) -> Optimizer:
    """Builds the optimizer that a worker has announced.

    Raises `OptimizerNotFound` if it cannot be made here, or would be another.
    """
    named = _NAME.fullmatch(config.name)
    if named is None:
        raise OptimizerNotFound(f"{config.name!r} is no name of an optimizer: module:Class.")
    try:
        with _IMPORTING:
            module = _module(named["module"], model_zoo)
    except UserError as error:
        raise OptimizerNotFound(
            f"The optimizer {named['name']} cannot be had from the model zoo {model_zoo}: {error.message}",
            hint="Parameter servers import it from their own copy of the zoo; on Kubernetes their image must have it.",
        ) from error
    kind: Any = module
    for part in named["name"].split("."):
        kind = getattr(kind, part, None)
    if not isinstance(kind, type) or not issubclass(kind, Optimizer):
        raise OptimizerNotFound(
            f"{named['name']} in {getattr(module, '__file__', None)} is no optimizer.",
            hint="Derive its class from elasticdl.Optimizer.",
        )
    if config.source and source_of(kind) not in ("", config.source):
        raise OptimizerChanged(
            f"{getattr(module, '__file__', None)} has changed since the job began: the optimizer {kind.__name__} "
            "in it is not the one that the other nodes of the job have.",
            hint="Put the file back as it was; or restart the job, from its last checkpoint if it has one.",
        )
    options: dict[str, Any] = dict(config.options)
    rate = inspect.signature(kind.__init__).parameters.get(_RATE)
    if rate is not None and rate.default is rate.empty:
        options[_RATE] = 0.0
    try:
        return kind(**options)
    except (Exception, SystemExit) as error:
        raise OptimizerNotFound(
            f"The optimizer {kind.__name__} cannot be made with {_listed(options)}:\n"
            f"{users_traceback(error).rstrip()}"
        ) from error


def _listed(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in options.items()) or "nothing"


def _module(name: str, model_zoo: str) -> ModuleType:
    known = sys.modules.get(name)
    if known is not None:
        return known
    if not model_zoo:
        raise UserError("There is no model zoo.")
    zoo = Path(model_zoo).expanduser().resolve()
    # Modules of a zoo that is a package may know each other by its name, too.
    if (zoo / "__init__.py").is_file():
        name = name.removeprefix(f"{zoo.name}.")
    return import_from_zoo(model_zoo, name)


class CustomRule:
    """A custom optimizer with its calls checked: errors of the user's code are reported with their traceback."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self.name = type(optimizer).__name__
        try:
            self.slots = {str(slot): float(initial) for slot, initial in optimizer.slots.items()}
        except (AttributeError, TypeError, ValueError):
            raise UserError(
                f"The slots of the optimizer {self.name} are {optimizer.slots!r}.",
                hint='They are names and what each is at first, such as {"velocity": 0.0}.',
            ) from None
        if len(self.slots) > MOST_SLOTS:
            raise UserError(
                f"The optimizer {self.name} has {len(self.slots)} slots: {MOST_SLOTS} are the most."
            )

    def update(
        self,
        what: str,
        value: Array,
        gradient: Array,
        slots: Mapping[str, Array],
        learning_rate: float,
        step: Any,
    ) -> tuple[Array, dict[str, Array]]:
        """The new value and slots, as the given ones are to be. They may be the arrays that were given, each in its own
        place: what the user's code has put elsewhere is a copy, so that the caller may write them in any order.
        """
        given = dict(slots)
        object.__setattr__(self._optimizer, _RATE, learning_rate)
        try:
            new = self._optimizer.update(value, gradient, given, learning_rate, step)
        except (UserError, MemoryError):
            raise
        except (Exception, SystemExit) as error:
            raise UserError(
                f"The optimizer {self.name} failed on {what}:\n{users_traceback(error).rstrip()}"
            ) from error
        if given.keys() != slots.keys():
            odd = ", ".join(sorted(given.keys() ^ slots.keys()))
            raise UserError(
                f"The optimizer {self.name} has other slots after an update of {what} than before: {odd}."
            )
        held = [value, *slots.values()]
        for slot, array in given.items():
            given[slot] = _apart(self._checked(f"{slot} of {what}", array, value), slots[slot], held)
        return _apart(self._checked(what, new, value), value, held), given

    def _checked(self, what: str, new: Any, like: Array) -> Array:
        if new is None:
            raise UserError(
                f"The optimizer {self.name} returns nothing for {what}.",
                hint="Its method update returns the new value of the parameter.",
            )
        array: Array = np.asarray(new)
        if array.shape != like.shape:
            raise UserError(
                f"The optimizer {self.name} makes {list(array.shape)} of {what}, which is {list(like.shape)}."
            )
        if array.dtype.kind not in _REAL_NUMBERS:
            raise UserError(
                f"The optimizer {self.name} makes {array.dtype} of {what}, which are no real numbers."
            )
        # In the type that they are kept in, where numbers may be too large that were computed in a wider one.
        with np.errstate(over="ignore"):
            array = array.astype(like.dtype, copy=False)
        if not np.isfinite(array).all():
            raise UserError(
                f"The optimizer {self.name} makes numbers of {what} that are not finite (NaN or infinity).",
                hint="Is something divided by zero? A smaller learning rate may help.",
            )
        return array


def _apart(array: Array, own: Array, held: Sequence[Array]) -> Array:
    """The array, or a copy if it has numbers of arrays that are going to be written to, other than its own place."""
    if array is own or not any(np.may_share_memory(array, each) for each in held):
        return array
    return array.copy()
