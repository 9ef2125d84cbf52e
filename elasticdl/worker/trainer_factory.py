"""Makes the trainer of a model definition: the result of the model function decides which framework it is for.

No framework is imported to find that out. A class says where it comes from in the modules of its bases, and a
framework that the model function did not load cannot have made the model.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.zoo_import import users_traceback
from elasticdl.worker.definition import ModelDefinition
from elasticdl.worker.trainer import Trainer

# The class whose subclasses are models, by the package it is defined in.
_MODEL_CLASSES = {
    ("keras", "Model"): "keras",
    ("tf_keras", "Model"): "keras",
    ("tensorflow", "Model"): "keras",
    ("torch", "Module"): "torch",
    ("paddle", "Layer"): "paddle",
}

_TRUE = {"true", "yes", "1", "on"}
_FALSE = {"false", "no", "0", "off"}


def make_trainer(definition: ModelDefinition, *, move_embeddings: int = 0) -> Trainer:
    """Calls the model function and wraps what it returns. Raises `UserError` if it is no model we know.

    Embeddings of at least `move_embeddings` bytes become tables; 0: none.
    """
    model = make_model(definition)
    framework = framework_of(model)
    if framework == "keras":
        from elasticdl.worker.keras.trainer import KerasTrainer

        return KerasTrainer(definition=definition, model=model, move_embeddings=move_embeddings)
    if framework == "torch":
        from elasticdl.worker.torch.trainer import TorchTrainer

        remarks: list[str] = []
        if move_embeddings:
            from elasticdl.worker.torch.embedding_offload import move_large

            remarks = move_large(model, at_least=move_embeddings)
        trainer = TorchTrainer(definition=definition, model=model)
        trainer.remarks = remarks
        return trainer
    if framework == "paddle":
        from elasticdl.worker.paddle.trainer import PaddleTrainer

        return PaddleTrainer(definition=definition, model=model, move_embeddings=move_embeddings)
    raise UserError(
        f"{definition.name} returned {_describe(model)}, not a model.",
        hint="It must return a keras.Model, a torch.nn.Module or a paddle.nn.Layer.",
    )


def make_model(definition: ModelDefinition) -> Any:
    arguments = convert_arguments(definition.model, definition.model_params, name=definition.name)
    try:
        return definition.model(**arguments)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"The model function {definition.name} failed:\n{users_traceback(error).rstrip()}"
        ) from error


def framework_of(model: object) -> str | None:
    """ "keras", "torch", "paddle", or None for anything else."""
    for base in type(model).__mro__:
        package = base.__module__.partition(".")[0]
        framework = _MODEL_CLASSES.get((package, base.__name__))
        if framework is not None:
            return framework
    return None


def convert_arguments(function: Callable[..., Any], given: Mapping[str, str], *, name: str) -> dict[str, Any]:
    """The texts of --model_params as the function wants them: by its annotations, else by the type of its defaults."""
    if not given:
        return {}
    parameters = inspect.signature(function).parameters
    takes_any = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        # An annotation that cannot be resolved here (a name imported for type checkers only) tells us nothing.
        hints = {}
    converted = {}
    for key, text in given.items():
        parameter = parameters.get(key)
        if parameter is None and not takes_any:
            raise UserError(
                f"--model_params: {name} has no argument {key}.{did_you_mean(key, parameters)}",
                hint=f"It takes: {', '.join(parameters)}." if parameters else "It takes no arguments.",
            )
        default = parameter.default if parameter is not None else inspect.Parameter.empty
        kind = hints.get(key)
        if kind is None and default is not inspect.Parameter.empty and default is not None:
            kind = type(default)
        try:
            converted[key] = _convert(text, kind)
        except ValueError as error:
            raise UserError(f"--model_params: {key}={text}: {error}.") from error
    return converted


def _convert(text: str, kind: Any) -> Any:
    options = _alternatives(kind)
    if type(None) in options and text.lower() in ("none", ""):
        return None
    options = [option for option in options if option is not type(None)]
    for option in options:
        if option in _CONVERSIONS:
            return _CONVERSIONS[option](text)
        if typing.get_origin(option) in (list, tuple) or option in (list, tuple):
            (inner, *_) = typing.get_args(option) or (None,)
            make = typing.get_origin(option) or option
            return make(
                _convert(part.strip(), inner) for part in text.strip("[]()").split(",") if part.strip()
            )
    return text if options else _guess(text)


def _alternatives(kind: Any) -> list[Any]:
    if kind is None or kind is Any:
        return []
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return list(typing.get_args(kind))
    return [kind]


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("not a number") from None


def _truth(text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise ValueError("neither true nor false")


def _guess(text: str) -> Any:
    """Converts an argument of unknown type: text that looks like a number or a truth value becomes one."""
    for attempt in (_integer, _number):
        try:
            return attempt(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)


_CONVERSIONS: dict[Any, Callable[[str], Any]] = {int: _integer, float: _number, bool: _truth, str: str}


def _describe(value: object) -> str:
    if value is None:
        return "nothing"
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
