"""Model definitions out of functions and classes of a notebook or script, shipped as source text.

A worker is another process, perhaps on another machine, and nothing that travels there is executed but the user's own
source. So no object is pickled: the source of the model function is written into a module of its own, with what it
uses of the place where it was written: other functions and classes (as source), imported modules (as imports) and
plain constants (as literals).

Failure modes
    What has no source, or whose meaning is more than its source, is an error that names it and says what to do:
    lambdas, closures, instances, built-in functions, code typed into a Python prompt, values that are no literals,
    modules that only this process can import. Nothing is guessed: a name that cannot be found is an error here, and not
    in the worker.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import hashlib
import importlib.metadata
import inspect
import linecache
import symtable
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.errors import UserError

# Where the module lies in the zoo that is made for it.
_FOLDER, _MODULE = "shipped", "definition"
# Flags that name functions and classes of a definition.
COMPANIONS = (
    "feed",
    "loss",
    "optimizer",
    "eval_metrics_fn",
    "callbacks",
    "custom_data_reader",
    "prediction_outputs_processor",
)
# The defaults of these flags.
_DEFAULT_NAMES = {"prediction_outputs_processor": "PredictionOutputsProcessor"}
_LITERALS = (bool, int, float, complex, str, bytes, type(None))
_OURS = ("elasticdl", "elasticai_api")


@dataclass(frozen=True, kw_only=True)
class ShippedDefinition:
    """The text of a module, and the flags that name what is in it."""

    text: str
    model_def: str
    names: Mapping[str, str]

    def write(self, folder: Path) -> dict[str, str]:
        """Writes the module into a zoo of its own below the folder. Returns the flags that stand for it.

        The same text always goes to the same place: a worker that starts later finds what the first one found.
        """
        zoo = folder / hashlib.sha256(self.text.encode()).hexdigest()[:16]
        (zoo / _FOLDER).mkdir(parents=True, exist_ok=True)
        (zoo / _FOLDER / "__init__.py").touch()
        path = zoo / _FOLDER / f"{_MODULE}.py"
        if not path.exists():
            new = path.with_suffix(".new")
            new.write_text(self.text)
            new.replace(path)
        return {"model_zoo": str(zoo), "model_def": self.model_def, **self.names}


def ship_objects(flags: Mapping[str, Any], *, folder: Path) -> dict[str, Any]:
    """Returns the flags of a job with objects replaced by names: `model=Net` by `model_zoo` and `model_def`.

    Flags without a `model` that is an object are returned as they are.

    Raises:
        UserError: An object cannot be shipped; the message says which and why.
    """
    shipped = dict(flags)
    model = shipped.pop("model", None)
    if model is None:
        given = [name for name in COMPANIONS if callable(shipped.get(name))]
        if given:
            raise UserError(
                f"{', '.join(given)}: a function is given, but no model.",
                hint="Give the model function or class too: model=..., or names of functions in --model_def's module.",
            )
        return shipped
    clash = [name for name in ("model_zoo", "model_def") if shipped.get(name) is not None]
    if clash:
        raise UserError(f"model and {', '.join(clash)} are given. Give one of them: both name the model.")
    objects = {name: shipped.pop(name) for name in COMPANIONS if callable(shipped.get(name))}
    return {**shipped, **definition_of(model, **objects).write(folder)}


def definition_of(model: Any, **companions: Any) -> ShippedDefinition:
    """The definition with this model function or class.

    Companions that are not given (`feed`, `loss`, ...) are those of the same names beside the model.

    Raises:
        UserError: Something cannot be shipped; the message says what and why.
    """
    module = _Module()
    model_name = module.add(model, "model")
    names = {flag: module.add(value, flag) for flag, value in companions.items()}
    namespace = _namespace(model)
    for flag in COMPANIONS:
        name = _DEFAULT_NAMES.get(flag, flag)
        value = namespace.get(name)
        if flag not in names and isinstance(value, (types.FunctionType, type)):
            module.add(value, name)
    return ShippedDefinition(text=module.text(), model_def=f"{_FOLDER}.{_MODULE}.{model_name}", names=names)


class _Module:
    """The module in the making: what it imports, its constants, and sources in the order in which they are needed."""

    def __init__(self) -> None:
        self._imports: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._sources: dict[str, str] = {}
        self._objects: dict[str, Any] = {}
        self._future = False

    def text(self) -> str:
        parts = ['"""Shipped from a notebook or script by elasticdl."""']
        if self._future:
            parts.append("from __future__ import annotations")
        parts += sorted(self._imports.values())
        parts += [f"{name} = {value}" for name, value in self._constants.items()]
        return "\n".join(parts) + "\n\n\n" + "\n\n".join(self._sources.values())

    def add(self, value: Any, what: str) -> str:
        """Adds a function or class and all that it uses. Returns its name."""
        _check(value, what)
        name = str(value.__name__)
        if not _is_written_beside(value):
            self._use(name, value, what)
            return name
        if self._is_known(name, value, what):
            return name
        # Before what it uses: functions may use each other.
        self._objects[name] = value
        source = _source_of(value, what)
        self._future |= _has_future_annotations(value)
        namespace = _namespace(value)
        for used in sorted(_global_names(source)):
            if used == name:
                continue
            if used in namespace:
                self._import_submodules(source, used, namespace[used])
                self._use(used, namespace[used], f"{what} ({name})")
            elif not hasattr(builtins, used):
                raise UserError(
                    f"{what}: {name} uses {used}, which is not defined.",
                    hint=f"Define {used} before the job is started, or import it inside of {name}.",
                )
        # After what it uses: a base class or a decorator is needed when the text is run.
        self._sources[name] = source
        return name

    def _is_known(self, name: str, value: Any, what: str) -> bool:
        if name not in self._objects:
            return False
        if self._objects[name] is not value:
            raise UserError(
                f"{what}: there are two different things by the name {name}.",
                hint="Rename one of them: both go into one module.",
            )
        return True

    def _import_submodules(self, source: str, name: str, value: Any) -> None:
        """`import a` does not import `a.b`, which the text may use as an attribute of it."""
        if not isinstance(value, types.ModuleType):
            return
        for node in ast.walk(ast.parse(source)):
            path = _dotted(node)
            if path is None or path[0] != name:
                continue
            for end in range(2, len(path) + 1):
                module = ".".join([value.__name__, *path[1:end]])
                if module in sys.modules:
                    self._imports[module] = f"import {module}"

    def _use(self, name: str, value: Any, user: str) -> None:
        if isinstance(value, types.ModuleType):
            _check_importable(value.__name__, name, user)
            self._note(self._imports, name, _import_line(value.__name__, name), user)
        elif isinstance(value, (types.FunctionType, type)) and _is_written_beside(value):
            if value.__name__ != name:
                raise UserError(
                    f"{user} uses {name}, which is {value.__name__} by another name.",
                    hint=f"Use {value.__name__} itself.",
                )
            self.add(value, f"{name}, which {user} uses")
        elif _module_of(value) is not None:
            module = str(_module_of(value))
            _check_importable(module, name, user)
            line = f"from {module} import {value.__name__}"
            self._note(self._imports, name, line if value.__name__ == name else f"{line} as {name}", user)
        elif _is_literal(value):
            self._note(self._constants, name, repr(value), user)
        else:
            raise UserError(
                f"{user} uses {name}, a {type(value).__name__} that exists in this process only.",
                hint=f"Make it inside of the function, or pass what it is made of with model_params. {name} would have "
                "to be a number, a text, or a list, tuple, set or dict of these.",
            )

    def _note(self, table: dict[str, str], name: str, text: str, user: str) -> None:
        other = self._imports.get(name) or self._constants.get(name)
        if other is not None and other != text:
            raise UserError(f"{user} uses {name}, which is something else in another part of the definition.")
        table[name] = text


def _check(value: Any, what: str) -> None:
    """Raises an error for what is more, or less, than its source."""
    if isinstance(value, types.MethodType):
        raise UserError(
            f"{what}: {value.__qualname__} is a method bound to an object of this process.",
            hint="Give a function that makes the object itself.",
        )
    if isinstance(value, types.BuiltinFunctionType):
        raise UserError(
            f"{what}: {value.__name__} is built in and has no source.", hint="Write a function that calls it."
        )
    if not isinstance(value, (types.FunctionType, type)):
        raise UserError(
            f"{what}: an object of type {type(value).__name__} exists in this process only.",
            hint="Give the function that makes it, or its class; its arguments go into model_params.",
        )
    if value.__name__ == "<lambda>":
        raise UserError(
            f"{what}: a lambda has no name in a module.", hint="Write it as a function, with def."
        )
    for function in _functions(value):
        # A class that calls super() has a cell for itself.
        cells = sorted(set(function.__code__.co_freevars) - {"__class__"})
        if cells:
            raise UserError(
                f"{what}: {function.__qualname__} is a closure over {', '.join(cells)}, which exists only in the "
                f"function around it.",
                hint="Give it as an argument (model_params), or define it at the top of the notebook or script.",
            )


def _functions(value: Any) -> Iterator[types.FunctionType]:
    """The function itself, or those in the body of the class."""
    if isinstance(value, types.FunctionType):
        yield inspect.unwrap(value)
        return
    for member in vars(value).values():
        member = getattr(member, "__func__", member)
        parts = (member.fget, member.fset, member.fdel) if isinstance(member, property) else (member,)
        for part in parts:
            if isinstance(part, types.FunctionType) and part.__module__ == value.__module__:
                yield inspect.unwrap(part)


def _source_of(value: Any, what: str) -> str:
    """The text of a definition, without its indentation, decorators included."""
    for filename, line in _places(value):
        text = "".join(linecache.getlines(filename))
        node = _find(text, value.__name__, line)
        if node is not None:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            lines = text.splitlines()[first - 1 : node.end_lineno]
            return textwrap.dedent("\n".join(lines)) + "\n"
    raise UserError(
        f"{what}: there is no source text of {value.__name__}. It was typed at a prompt, made by exec, or its file is "
        "gone.",
        hint="Write it in a file or a notebook cell, or name it with --model_zoo and --model_def.",
    )


def _places(value: Any) -> Iterator[tuple[str, int | None]]:
    """Files and lines where the definition may be: the line of a class is that of a function in it."""
    for function in _functions(value):
        yield function.__code__.co_filename, function.__code__.co_firstlineno
    if isinstance(value, type):
        module = sys.modules.get(value.__module__)
        file = getattr(module, "__file__", None)
        if file is not None:
            yield str(file), None


def _find(
    text: str, name: str, line: int | None
) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | None:
    """The last definition of that name that contains the line."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    found = None
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or node.name != name:
            continue
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        if line is None or first <= line <= (node.end_lineno or node.lineno):
            found = node
    return found


def _dotted(node: ast.AST) -> list[str] | None:
    """`a.b.c` as its names."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not names or not isinstance(node, ast.Name):
        return None
    return [node.id, *reversed(names)]


def _global_names(source: str) -> set[str]:
    """The names that the text takes from the module around it."""
    found: set[str] = set()

    def look(table: symtable.SymbolTable) -> None:
        for symbol in table.get_symbols():
            outside = table.get_type() == "module" and not symbol.is_assigned()
            if symbol.is_referenced() and (outside or symbol.is_global()):
                found.add(symbol.get_name())
        for child in table.get_children():
            look(child)

    look(symtable.symtable(source, "<definition>", "exec"))
    return found


def _has_future_annotations(value: Any) -> bool:
    flag = __future__.annotations.compiler_flag
    return any(function.__code__.co_flags & flag for function in _functions(value))


def _namespace(value: Any) -> Mapping[str, Any]:
    """The names of the notebook or module in which it was written."""
    for function in _functions(value):
        return function.__globals__
    module = sys.modules.get(value.__module__)
    return {} if module is None else vars(module)


def _is_written_beside(value: Any) -> bool:
    """Whether it is of the script or notebook itself, which no other process can import."""
    return str(value.__module__) == "__main__" or not _is_importable(str(value.__module__))


def _module_of(value: Any) -> str | None:
    """The module by which other processes get the same object."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        return None
    return module if getattr(sys.modules.get(module), name, None) is value else None


def _import_line(module: str, name: str) -> str:
    if module == name:
        return f"import {module}"
    parent, _, last = module.rpartition(".")
    return f"from {parent} import {name}" if parent and last == name else f"import {module} as {name}"


def _check_importable(module: str, name: str, user: str) -> None:
    if not _is_importable(module):
        raise UserError(
            f"{user} uses {name} of the module {module}, which is not installed: workers cannot import it.",
            hint="Install it as a package, move what is needed into the notebook, or make a model zoo of its folder.",
        )


def _is_importable(module: str) -> bool:
    """Whether a worker can import it: of Python itself, or installed."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in _OURS:
        return top != "__main__"
    return top in _installed()


_INSTALLED: set[str] = set()


def _installed() -> set[str]:
    """The top-level names of installed packages; looked up once, which takes a while."""
    if not _INSTALLED:
        _INSTALLED.update(importlib.metadata.packages_distributions())
    return _INSTALLED


def _is_literal(value: Any) -> bool:
    if isinstance(value, (list, tuple, set, frozenset)):
        return (
            type(value) in (list, tuple, set)
            and bool(value or type(value) is not set)
            and all(map(_is_literal, value))
        )
    if isinstance(value, dict):
        return type(value) is dict and all(_is_literal(k) and _is_literal(v) for k, v in value.items())
    # An infinity or NaN has no literal.
    return type(value) in _LITERALS and (not isinstance(value, float) or value - value == 0)
