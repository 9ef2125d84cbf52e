"""A model definition: the user's module, found in a model zoo folder and taken apart into its functions.

Every error in it is for the user to fix, so it is reported in their terms: the part of
the traceback that lies in their code, the function that is missing and what the module has in its place, the
framework to install.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.zoo_import import import_from_zoo, is_machinery, users_traceback
from elasticdl.worker.environment import prepare_environment

# The functions by the flag that names them. The first four a module must have, if it is asked for them.
REQUIRED = ("feed", "loss", "optimizer", "eval_metrics_fn")
OPTIONAL = ("callbacks", "custom_data_reader", "prediction_outputs_processor")
_DEFAULT_NAMES = {"prediction_outputs_processor": "PredictionOutputsProcessor"}


class ProgramError(UserError):
    """The user's own code raised an error while it ran on data. `traceback` is the part in their code."""

    def __init__(self, message: str, *, traceback: str = "", hint: str = "") -> None:
        super().__init__(f"{message}\n{traceback.rstrip()}" if traceback else message, hint=hint)
        self.summary = message
        self.traceback = traceback


# Words of frameworks and NumPy about arrays that do not fit each other.
_MISFIT = re.compile(
    r"shape|size|dimension|\bdims?\b|broadcast|dtype|scalar type|must match|incompatible|out of (bounds|range)"
    r"|do not fit|rank|axis|unsupported operand|Using a target",
    re.IGNORECASE,
)


_FRAME = re.compile(r'File "([^"]+)", line \d+[^\n]*\n\s+(\S[^\n]*)')


def is_misfit(error: BaseException) -> bool:
    """Whether shapes, types or names of arrays are the cause: the user's code itself does not raise the error."""
    last = [(frame.filename, frame.line or "") for frame in traceback.extract_tb(error.__traceback__)][-1:]
    # TensorFlow has the frames of a graph in its text.
    last += _FRAME.findall(str(error))[-1:]
    if any(line.startswith(("raise", "assert")) and not is_machinery(file) for file, line in last):
        return False
    return isinstance(error, KeyError) or _MISFIT.search(str(error)) is not None


def function_error(
    what: str, error: BaseException, *, given: str, summary: str = "", hint: str = ""
) -> UserError:
    """The error of a function of the definition, with the user's traceback. `given`: what it was called with, which is
    said only if that does not fit.
    """
    text = summary or str(error)
    where = users_traceback(error)
    if is_misfit(error):
        # No other try helps.
        return UserError(f"{what} does not fit {given}: {text}\n{where.rstrip()}", hint=hint)
    return ProgramError(f"{what} failed: {type(error).__name__}: {text}", traceback=where)


@dataclass(frozen=True, kw_only=True)
class ModelDefinition:
    """The functions of a module of the model zoo. A function it lacks raises `UserError` when it is called."""

    name: str
    path: Path
    model: Callable[..., Any]
    feed: Callable[..., Any]
    loss: Callable[..., Any]
    optimizer: Callable[..., Any]
    eval_metrics_fn: Callable[..., Any]
    callbacks: Callable[..., Any] | None = None
    custom_data_reader: Callable[..., Any] | None = None
    prediction_outputs_processor: Callable[..., Any] | None = None
    model_params: Mapping[str, str] = field(default_factory=dict)

    def output_processor(self) -> Callable[[Any, int], None] | None:
        """`process` of the definition's PredictionOutputsProcessor, if there is one. Its errors become UserErrors."""
        make = self.prediction_outputs_processor
        if make is None:
            return None
        try:
            processor = make() if isinstance(make, type) else make
        except Exception as error:
            raise UserError(
                f"{self.name}: the outputs processor failed: {type(error).__name__}: {error}\n"
                f"{users_traceback(error).rstrip()}"
            ) from error
        if not hasattr(processor, "process"):
            raise UserError(
                f"The {type(processor).__name__} of {self.name} has no method process.",
                hint="Define process(self, predictions, worker_id).",
            )

        def process(predictions: Any, worker_id: int) -> None:
            try:
                processor.process(predictions, worker_id)
            except UserError:
                raise
            except Exception as error:
                raise ProgramError(
                    f"The outputs processor failed: {type(error).__name__}: {error}",
                    traceback=users_traceback(error),
                ) from error

        return process


def load_definition(
    *, model_zoo: str, model_def: str, names: Mapping[str, str], model_params: Mapping[str, str]
) -> ModelDefinition:
    """Imports `folder.module` of the model zoo and finds its functions.

    `names` has the name of each function by its flag. Those of `REQUIRED` that are in it must exist; others may
    be missing until they are used, unless their name is not the default: then the user asked for them.
    """
    module_name, _, function = model_def.rpartition(".")
    if not module_name:
        raise UserError(
            f"--model_def={model_def} names no module.",
            hint="Write folder.module.function, for example digits.keras_cnn.custom_model.",
        )
    unknown = [flag for flag in names if flag not in REQUIRED + OPTIONAL]
    if unknown:
        raise ValueError(f"not functions of a model definition: {unknown}")
    prepare_environment()
    module = import_from_zoo(model_zoo, module_name)
    found: dict[str, Any] = {"model": _function(module, function, flag="model_def")}
    for flag in REQUIRED:
        name = names.get(flag) or flag
        if flag in names or hasattr(module, name):
            found[flag] = _function(module, name, flag=flag)
        else:
            found[flag] = _missing(module, name, flag)
    for flag in OPTIONAL:
        usual = _DEFAULT_NAMES.get(flag, flag)
        name = names.get(flag) or usual
        if name != usual or hasattr(module, name):
            found[flag] = _function(module, name, flag=flag)
    return ModelDefinition(
        name=model_def, path=Path(str(module.__file__)), model_params=dict(model_params), **found
    )


def _function(module: ModuleType, name: str, *, flag: str) -> Callable[..., Any]:
    function = getattr(module, name, None)
    if function is None:
        raise _no_function(module, name, flag)
    if not callable(function):
        raise UserError(
            f"{name} in {module.__file__} is a {type(function).__name__}, not a function (--{flag})."
        )
    checked: Callable[..., Any] = function
    return checked


def _missing(module: ModuleType, name: str, flag: str) -> Callable[..., Any]:
    def raise_it(*_: object, **__: object) -> Any:
        raise _no_function(module, name, flag)

    return raise_it


def _no_function(module: ModuleType, name: str, flag: str) -> UserError:
    there = sorted(
        key
        for key, value in vars(module).items()
        if callable(value)
        and not key.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
    )
    return UserError(
        f"There is no function {name} in {module.__file__}.{did_you_mean(name, there)}",
        hint=f"Define it, or name another one with --{flag}."
        + (f" The module has: {', '.join(there)}." if there else ""),
    )
