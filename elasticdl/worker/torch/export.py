"""A trained PyTorch model, written for use elsewhere. A folder with

    state_dict.pt          the values: load_state_dict(torch.load(..., weights_only=True))
    model.pt2              the program and the values: torch.export.load(...).module(), for any number of samples
    model.torchscript.pt   the same for torch.jit.load and C++, where the model can be scripted

The first is always there. The others need a model that PyTorch can take apart; if it cannot, that is reported
and the training still succeeds. A program is kept only if it loads again and gives the outputs the model
gives.

Everything is written to a neighbour of the folder first. A folder that is new gets its name when all is
written; in one that exists each file is replaced at a stroke, and files that are not ours are left alone.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

from elasticdl.worker.model.export_folder import NotWritten, disk_errors, neighbour, publish
from elasticdl.worker.table_layers import Tables
from elasticdl.worker.torch.table_lookup import as_ordinary, with_own_rows

log = logging.getLogger("elasticdl.worker")

VALUES = "state_dict.pt"
PROGRAM = "model.pt2"
SCRIPT = "model.torchscript.pt"


def write_export(
    model: Any, path: Path, arguments: tuple[Any, ...], keywords: dict[str, Any], tables: Tables
) -> list[str]:
    """Writes the model, which is in evaluation mode. Returns one line a thing written, or not written."""
    arguments, keywords = _two_samples((arguments, keywords))
    with disk_errors(path), neighbour(path) as folder:
        with (
            with_own_rows(tables) if tables else contextlib.nullcontext(),
            _written(folder / VALUES) as file,
        ):
            torch.save(model.state_dict(), file)
        lines = [f"values: {path / VALUES}"]
        with as_ordinary(tables) if tables else contextlib.nullcontext():
            lines += _attempt(
                "program", PROGRAM, folder, path, lambda file: _program(model, file, arguments, keywords)
            )
            lines += _attempt(
                "TorchScript", SCRIPT, folder, path, lambda file: _script(model, file, arguments, keywords)
            )
        publish(folder, path, (VALUES, PROGRAM, SCRIPT))
    return lines


def _attempt(what: str, name: str, folder: Path, path: Path, write: Callable[[Path], None]) -> list[str]:
    try:
        with _quiet(), torch.no_grad():
            write(folder / name)
    except (NotWritten, MemoryError):
        raise
    except Exception as error:
        log.debug("no %s of the model", what, exc_info=True)
        (folder / name).unlink(missing_ok=True)
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return [f"no {what}: it cannot be made of this model ({first[:200]})"]
    return [f"{what}: {path / name}"]


def _program(model: Any, path: Path, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    samples = torch.export.Dim("samples")
    shapes = pytree.tree_map(
        lambda value: {0: samples} if isinstance(value, torch.Tensor) and value.ndim else None,
        (arguments, keywords),
    )
    program = torch.export.export(model, arguments, keywords, dynamic_shapes=_shapes(model, *shapes))
    with _written(path) as file:
        torch.export.save(program, file)
    loaded = torch.export.load(str(path)).module()
    # Once more with another number of samples: a program may be right for the example only.
    for example in ((arguments, keywords), _repeated((arguments, keywords))):
        _check_same(model(*example[0], **example[1]), loaded(*example[0], **example[1]))


def _shapes(model: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Returns the dynamic shapes: a tuple for positional arguments; with keywords, PyTorch needs all names."""
    if not keywords:
        return arguments
    from inspect import signature

    return dict(zip(signature(model.forward).parameters, arguments, strict=False)) | keywords


def _script(model: Any, path: Path, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    # The flag that callbacks set is none of the model's.
    stop = model.__dict__.pop("stop_training", None)
    try:
        scripted = torch.jit.script(model)
    finally:
        if stop is not None:
            model.stop_training = stop
    with _written(path) as file:
        torch.jit.save(scripted, file)
    _check_same(model(*arguments, **keywords), torch.jit.load(str(path))(*arguments, **keywords))


def _check_same(expected: Any, found: Any) -> None:
    ours, _ = pytree.tree_flatten(expected)
    theirs, _ = pytree.tree_flatten(found)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(a, torch.Tensor) and not torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True):
            raise ValueError("its outputs differ from the model's")


def _two_samples(values: Any) -> Any:
    """Doubles a single sample, which would become a constant: PyTorch exports programs for 0, for 1, or for any number
    from 2.
    """
    sizes = {v.shape[0] for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor) and v.ndim}
    return _repeated(values) if sizes == {1} else values


def _repeated(values: Any) -> Any:
    return pytree.tree_map(
        lambda v: torch.cat([v, v]) if isinstance(v, torch.Tensor) and v.ndim else v, values
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the pages that PyTorch writes about a model it cannot take apart: one line of it is reported."""
    loggers = [
        logging.getLogger(name) for name in ("torch._dynamo", "torch.export", "torch._export", "torch.fx")
    ]
    levels = [each.level for each in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for each in loggers:
            each.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for each, level in zip(loggers, levels, strict=True):
                each.setLevel(level)


class _File:
    """A file to write to that remembers why it could not be: PyTorch's writers then say something else."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self.failure: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return self._file.write(data)
        except OSError as error:
            self.failure = error
            raise

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            self.failure = error


@contextlib.contextmanager
def _written(path: Path) -> Iterator[_File]:
    file = _File(path)
    try:
        yield file
    finally:
        file.close()
        if file.failure is not None:
            raise NotWritten from file.failure
