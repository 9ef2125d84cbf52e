"""A model definition: the user's module, found in a model zoo folder and taken apart into its functions.

Everything that can be wrong with it is the user's to put right, so it is told in their own terms: the part of
the traceback that lies in their code, the function that is missing and what the module has in its place, the
framework to install.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from elasticdl.jobs.definition_check import FRAMEWORK_EXTRAS
from elasticdl.jobs.errors import UserError
from elasticdl.jobs.nearest import did_you_mean
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


@dataclass(frozen=True, kw_only=True)
class ModelDefinition:
    """What a module of the model zoo offers. A function it lacks raises `UserError` when it is called."""

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


def load_definition(
    *, model_zoo: str, model_def: str, names: Mapping[str, str], model_params: Mapping[str, str]
) -> ModelDefinition:
    """Imports `folder.module` of the model zoo and finds its functions.

    `names` has the name of each function by its flag. Those of `REQUIRED` that are in it must exist; others may
    be missing until they are used, unless their name is not the usual one: then somebody asked for them.
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
    module = _import(Path(model_zoo).expanduser(), module_name)
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


def users_traceback(error: BaseException) -> str:
    """The traceback of an error without frames of our own, of the import system and of frameworks.

    Where a framework raised it, its last frame stays: it says what was tried.
    """
    frames = traceback.extract_tb(error.__traceback__)
    shown = [frame for frame in frames if not is_machinery(frame.filename)]
    if shown and shown[-1] is not frames[-1]:
        shown.append(frames[-1])
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(shown)] if shown else []
    return "".join([*lines, *traceback.format_exception_only(type(error), error)])


_OUR_FOLDER = str(Path(__file__).resolve().parent.parent)
_IMPORT_SYSTEM = str(Path(importlib.__file__).parent)
_FRAMEWORKS = tuple(f"/site-packages/{name}/" for name in ("tensorflow", "keras", "tf_keras", "torch"))


def is_machinery(filename: str) -> bool:
    if filename.startswith(("<", _OUR_FOLDER, _IMPORT_SYSTEM)):
        return True
    path = filename.replace("\\", "/")
    return "__autograph_generated_file" in path or any(framework in path for framework in _FRAMEWORKS)


def _import(zoo: Path, module_name: str) -> ModuleType:
    if not zoo.is_dir():
        raise UserError(
            f"There is no model zoo folder {zoo}.", hint="Give an existing folder with --model_zoo."
        )
    zoo = zoo.resolve()
    _check_exists(zoo, module_name)
    _make_importable(zoo)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise _not_installed(error, module_name) from error
    except (Exception, SystemExit) as error:
        raise UserError(
            f"The module {module_name} in {zoo} cannot be imported:\n{users_traceback(error).rstrip()}"
        ) from error
    file = getattr(module, "__file__", None)
    if file is None or zoo not in Path(file).resolve().parents:
        raise UserError(
            f"The name {module_name} stands for {file or 'a folder'} here, not for the module in {zoo}.",
            hint="Rename the folder in the model zoo: an installed package has the same name.",
        )
    return module


def _check_exists(zoo: Path, module_name: str) -> None:
    """Says which part of the name does not exist, and what is there: more than the import system would."""
    folder = zoo
    *folders, last = module_name.split(".")
    for part in folders:
        if not (folder / part).is_dir():
            there = sorted(child.name for child in folder.iterdir() if child.is_dir())
            raise UserError(f"There is no folder {part} in {folder}.{did_you_mean(part, there)}")
        folder = folder / part
    if not (folder / f"{last}.py").is_file() and not (folder / last / "__init__.py").is_file():
        modules = sorted(child.stem for child in folder.glob("*.py") if child.stem != "__init__")
        raise UserError(
            f"There is no module {last}.py in {folder}.{did_you_mean(last, modules)}",
            hint=f"It has: {', '.join(modules)}." if modules else "There is no Python file in it.",
        )


def _make_importable(zoo: Path) -> None:
    if str(zoo) not in sys.path:
        sys.path.insert(0, str(zoo))
    package = zoo / "__init__.py"
    if package.is_file() and zoo.name not in sys.modules:
        # Definitions may import each other as `model_zoo.folder.module`. The folder above the zoo does not go on
        # the path for that: whatever else lies there would then hide installed packages.
        spec = importlib.util.spec_from_file_location(
            zoo.name, package, submodule_search_locations=[str(zoo)]
        )
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            sys.modules[zoo.name] = module
            spec.loader.exec_module(module)


def _not_installed(error: ModuleNotFoundError, module_name: str) -> UserError:
    missing = (error.name or "").partition(".")[0]
    where = f"\n{users_traceback(error).rstrip()}"
    if missing in FRAMEWORK_EXTRAS:
        return UserError(
            f"The model definition {module_name} needs {missing}, which is not installed.",
            hint=f"pip install 'elasticdl[{FRAMEWORK_EXTRAS[missing]}]'",
        )
    return UserError(
        f"The module {module_name} cannot be imported: there is no module {error.name}.{where}",
        hint=f"Install what provides {error.name}, or correct the import.",
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
