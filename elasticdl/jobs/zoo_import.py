"""Imports modules of a model zoo, and reports errors of the user's own code with its traceback.

What is imported is a file in the zoo folder of the job, and nothing else: a name that stands for something installed is
an error.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from elasticdl.errors import UserError
from elasticdl.extras import install_command
from elasticdl.jobs.definition_check import FRAMEWORK_EXTRAS
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.zoo_folder import zoo_folder


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
_INSTALLED_ZOO = str(Path(_OUR_FOLDER, "zoo"))
_IMPORT_SYSTEM = str(Path(importlib.__file__).parent)
_FRAMEWORKS = tuple(
    f"/site-packages/{name}/" for name in ("tensorflow", "keras", "tf_keras", "torch", "paddle")
)


def is_machinery(filename: str) -> bool:
    if filename.startswith(_INSTALLED_ZOO):
        return False
    if filename.startswith(("<", _OUR_FOLDER, _IMPORT_SYSTEM)):
        return True
    path = filename.replace("\\", "/")
    return "__autograph_generated_file" in path or any(framework in path for framework in _FRAMEWORKS)


def import_from_zoo(model_zoo: str, module_name: str) -> ModuleType:
    """The module `folder.module` of a zoo. Raises `UserError` if there is none, or if it cannot be imported."""
    zoo = zoo_folder(model_zoo).resolve()
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
            hint=install_command(FRAMEWORK_EXTRAS[missing]),
        )
    return UserError(
        f"The module {module_name} cannot be imported: there is no module {error.name}.{where}",
        hint=f"Install what provides {error.name}, or correct the import.",
    )
