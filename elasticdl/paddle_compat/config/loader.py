"""Runs a configuration, and says in plain words why one does not run."""

from __future__ import annotations

import ast
import contextlib
import importlib
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

from elasticdl.errors import UserError
from elasticdl.paddle_compat.config.graph import Configuration, Running
from elasticdl.paddle_compat.config.helpers import modules, unsupported
from elasticdl.paddle_compat.config.provider import Provider

_PYTHON_2 = (
    "It may be written for Python 2: `print` is a function, and `xrange`, `iteritems` and `unicode` are gone."
)
_INSTALLED = ("stdlib", "purelib", "platlib")


def is_fleet_script(path: Path) -> bool:
    """Whether a file is a program for Paddle's fleet and no configuration. Does not run it."""
    tree = _parse(path)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(
            each.name.startswith("paddle.distributed") for each in node.names
        ):
            return True
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("paddle.distributed"):
            return True
    return False


def load_configuration(path: Path, *, config_args: str = "") -> Configuration:
    """Raises `UserError` with the line of the configuration that failed."""
    code = compile(_parse(path), str(path), "exec")
    configuration = Configuration(arguments=_config_arguments(config_args))
    with old_modules(), Running(configuration), _explained(path):
        exec(code, {"__name__": "__paddle_config__", "__file__": str(path)})
    if not configuration.outputs and not configuration.test_only:
        raise UserError(f"{path} has no outputs.", hint="End it with outputs(COST).")
    return configuration


def load_provider(configuration: Configuration, path: Path) -> Provider:
    sources = configuration.sources
    if sources is None:
        raise UserError(f"{path} names no data: call define_py_data_sources2(...).")
    with old_modules(), _explained(Path(f"{sources.module}.py")):
        module = importlib.import_module(sources.module)
    provider = getattr(module, sources.obj, None)
    if not isinstance(provider, Provider):
        raise UserError(
            f"{sources.module}.{sources.obj} is not a data provider.", hint="Decorate it with @provider(...)."
        )
    return provider


@contextlib.contextmanager
def old_modules() -> Iterator[None]:
    """`paddle.trainer_config_helpers` and `paddle.trainer` can be imported inside, and the configuration's folder."""
    added = modules()
    kept = list(sys.path)
    sys.modules.update(added)
    sys.path.insert(0, str(Path.cwd()))
    try:
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)
        sys.path[:] = kept


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """An error of the user's code becomes a `UserError` that names its line."""
    with _explained(path):
        yield


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except NameError as error:
        if error.name:
            found = unsupported(error.name)
            raise UserError(f"{_place(error, path)}: {found.message}", hint=found.hint) from error
        raise UserError(f"{_place(error, path)}: {error}") from error
    except UserError as error:
        raise UserError(f"{_place(error, path)}: {error.message}", hint=error.hint) from error
    except SyntaxError as error:
        raise UserError(f"{error.filename}:{error.lineno}: {error.msg}.", hint=_PYTHON_2) from error
    except ImportError as error:
        raise UserError(
            f"{_place(error, path)}: {error}.", hint="Put it beside the configuration."
        ) from error
    except SystemExit as error:
        # With its exit code, a run that has trained nothing would succeed.
        raise UserError(f"{_place(error, path)}: exits with {error.code!r}.") from error
    except Exception as error:
        raise UserError(f"{_place(error, path)}: {type(error).__name__}: {error}") from error


def _place(error: BaseException, path: Path) -> str:
    """The last line of the user's own files in the traceback, not of an installed package (some hook sys.exit)."""
    frames = traceback.extract_tb(error.__traceback__)
    installed = (str(Path(__file__).resolve().parents[1]), "<frozen", *map(sysconfig.get_path, _INSTALLED))
    users = [each for each in frames if not each.filename.startswith(installed)]
    last = next((each for each in reversed(users) if Path(each.filename).exists()), None)
    return f"{Path(last.filename).name}:{last.lineno}" if last else str(path)


def _parse(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(), str(path))
    except OSError as error:
        raise UserError(f"The configuration {path} cannot be read: {error.strerror}.") from error
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", "?")
        raise UserError(f"{path}:{line}: {getattr(error, 'msg', error)}.", hint=_PYTHON_2) from error


def _config_arguments(text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise UserError(f"--config_args takes NAME=VALUE,…, not {part!r}.")
        found[name.strip()] = value.strip()
    return found
