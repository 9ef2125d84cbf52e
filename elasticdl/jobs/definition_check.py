"""Checks a model definition without running it, so that a mistyped name fails at once.

Importing the module would take the seconds that its framework takes to load, in a process that has no use
for it; and by then the nodes of the job would be running. The text of the module says nearly all there is to
know. Where it does not (it imports everything from elsewhere), nothing is claimed, and the worker finds out.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.extras import install_command
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.schema.flag_index import LEAVES
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.zoo_folder import zoo_folder

# The part of elasticdl to install for each framework that definitions import.
FRAMEWORK_EXTRAS = {
    "tensorflow": "keras",
    "keras": "keras",
    "tf_keras": "keras",
    "torch": "torch",
    "paddle": "paddle",
}

# By the flags that name them. The model function is needed always.
_REQUIRED = {
    "train": ("feed", "loss", "optimizer", "eval_metrics_fn"),
    "evaluate": ("feed", "loss", "eval_metrics_fn"),
    "predict": ("feed",),
}
_OPTIONAL = {
    "train": ("callbacks", "custom_data_reader"),
    "evaluate": ("custom_data_reader",),
    "predict": ("custom_data_reader", "prediction_outputs_processor"),
}


def check_definition(spec: JobSpec) -> None:
    """Raises `UserError` if the job's model definition is not there, does not parse, or lacks a function."""
    path = locate(spec.model.model_zoo, spec.model.model_def)
    module = _read(path)
    _check_frameworks(spec, module, path)
    if not module.decidable:
        return
    wanted = {"model_def": spec.model.model_def.rpartition(".")[2]}
    wanted.update({flag: getattr(spec.model, flag) for flag in _REQUIRED[spec.kind]})
    for flag in _OPTIONAL[spec.kind]:
        name = getattr(spec.model, flag)
        # An explicit name means that the definition must have it.
        if name != LEAVES[flag].default():
            wanted[flag] = name
    problems = [
        f"{path} has no {name} (--{flag}).{did_you_mean(name, module.functions)}"
        for flag, name in wanted.items()
        if name not in module.names
    ]
    if problems:
        _check_imports(spec, module, path)
        there = ", ".join(module.functions) or "none"
        raise UserError("\n".join(problems), hint=f"The functions and classes in it: {there}.")
    _check_outlet(spec, module, path)


def defined_names(spec: JobSpec) -> frozenset[str] | None:
    """The names at the top of the job's model definition; None where its text does not tell."""
    module = _read(locate(spec.model.model_zoo, spec.model.model_def))
    return module.names if module.decidable else None


def locate(model_zoo: str, model_def: str) -> Path:
    """The file of the module in `folder.module.function`, or `UserError` that says which part is missing."""
    folder = zoo_folder(model_zoo)
    *folders, module, _function = model_def.split(".")
    for part in folders:
        if not (folder / part).is_dir():
            there = sorted(child.name for child in folder.iterdir() if child.is_dir())
            raise UserError(
                f"--model_def={model_def}: there is no folder {part} in {folder}.{did_you_mean(part, there)}"
            )
        folder = folder / part
    for path in (folder / module / "__init__.py", folder / f"{module}.py"):
        if path.is_file():
            return path
    modules = sorted(child.stem for child in folder.glob("*.py") if child.stem != "__init__")
    raise UserError(
        f"--model_def={model_def}: there is no module {module}.py in {folder}."
        + did_you_mean(module, modules),
        hint=f"The modules in it: {', '.join(modules)}." if modules else "There is no Python file in it.",
    )


@dataclass(frozen=True, kw_only=True)
class _Module:
    # Packages that it imports whatever happens: not those it may try, or use on a condition.
    packages: frozenset[str]
    names: frozenset[str]
    functions: tuple[str, ...]
    decidable: bool


def _check_frameworks(spec: JobSpec, module: _Module, path: Path) -> None:
    zoo = zoo_folder(spec.model.model_zoo)
    for package in sorted(module.packages & FRAMEWORK_EXTRAS.keys()):
        of_the_zoo = (zoo / package).is_dir() or (zoo / f"{package}.py").is_file()
        if not of_the_zoo and not _installed(package):
            raise UserError(
                f"{path} needs {package}, which is not installed.",
                hint=install_command(FRAMEWORK_EXTRAS[package]),
            )


def _check_imports(spec: JobSpec, module: _Module, path: Path) -> None:
    """Names that a failing import would have brought are not missing functions."""
    zoo = zoo_folder(spec.model.model_zoo)
    for package in sorted(module.packages):
        of_the_zoo = (
            package == zoo.resolve().name or (zoo / package).is_dir() or (zoo / f"{package}.py").is_file()
        )
        if not of_the_zoo and not _installed(package):
            raise UserError(
                f"{path} imports {package}, which is not installed and not in {zoo}.",
                hint=f"Install what provides {package}, or correct the import.",
            )


def _installed(package: str) -> bool:
    try:
        spec = importlib.util.find_spec(package)
        # A folder of that name is found too, but has no module.
        return spec is not None and spec.origin is not None
    except (ModuleNotFoundError, ValueError):
        return False


def _check_outlet(spec: JobSpec, module: _Module, path: Path) -> None:
    processor = spec.model.prediction_outputs_processor
    if spec.kind == "predict" and not spec.training.output and processor not in module.names:
        raise UserError(
            f"The predictions would go nowhere: --output is not given, and {path} has no {processor}.",
            hint="Add --output=predictions.parquet (or .csv), or define the class.",
        )


def _read(path: Path) -> _Module:
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        line = f"\n    {error.text.strip()}" if error.text else ""
        raise UserError(
            f"{path}:{error.lineno or 1}: the module does not parse: {error.msg}.{line}"
        ) from None
    except ValueError as error:
        raise UserError(f"{path} is not a Python file: {error}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    statements = list(_top_level(tree.body))
    names = frozenset(name for statement in statements for name in _bound(statement))
    functions = tuple(
        statement.name
        for statement in statements
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        and not statement.name.startswith("_")
    )
    # A star brings names we cannot see, and so may a module's own __getattr__.
    decidable = "*" not in names and "__getattr__" not in names
    packages = frozenset(package for statement in tree.body for package in _imported(statement))
    return _Module(packages=packages, names=names, functions=functions, decidable=decidable)


def _imported(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            yield alias.name.partition(".")[0]
    elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
        yield statement.module.partition(".")[0]


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under its `if`, `try` and `with` too, but in no function or class."""
    for statement in body:
        yield statement
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        for block in ("body", "orelse", "finalbody"):
            yield from _top_level(getattr(statement, block, []))
        for handler in getattr(statement, "handlers", []):
            yield from _top_level(handler.body)


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0]
    elif isinstance(statement, (ast.Assign, ast.AnnAssign, ast.For, ast.With)):
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id
