"""A trained Paddle model, written for use elsewhere. A folder with

    model.pdparams         the values: model.set_state_dict(paddle.load(...)); with tables, elasticdl.paddle.load_state
    model.pdmodel          the program, for any number of samples: paddle.jit.load(FOLDER/model), Paddle Inference
    model.pdiparams        the values of the program
    model.pdiparams.info   what Paddle notes about them

The first is always there. The others need a model that Paddle can trace; if it cannot, that is reported and the
training still succeeds. A program is kept only if it loads again and gives the outputs the model gives.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle.static import InputSpec

from elasticdl.paddle import state_of
from elasticdl.worker.model.export_folder import disk_errors, neighbour, publish
from elasticdl.worker.paddle.table_lookup import as_ordinary
from elasticdl.worker.scoring.evaluation_metrics import outputs_by_name
from elasticdl.worker.table_layers import Tables

log = logging.getLogger("elasticdl.worker")

NAME = "model"
VALUES = f"{NAME}.pdparams"
PROGRAM = (f"{NAME}.pdmodel", f"{NAME}.pdiparams", f"{NAME}.pdiparams.info")


def write_export(
    model: Any, path: Path, arguments: tuple[Any, ...], keywords: dict[str, Any], tables: Tables
) -> list[str]:
    """Writes the model, which is in evaluation mode. Returns one line a thing written, or not written."""
    with disk_errors(path), neighbour(path) as folder:
        with _own_rows(tables):
            paddle.save(state_of(model), str(folder / VALUES))
        lines = [f"values: {path / VALUES}"]
        with as_ordinary(tables) if tables else contextlib.nullcontext():
            lines += _attempt(model, folder, path, arguments, keywords)
        publish(folder, path, (VALUES, *PROGRAM))
    return lines


@contextlib.contextmanager
def _own_rows(tables: Tables) -> Iterator[None]:
    """Gives every layer rows of its own inside of this context, as in a notebook."""
    if not tables:
        yield
        return
    assert tables.own is not None
    assert tables.lookups is not None
    for table, layer in tables.layers:
        layer.join(table, None)
        layer.own().tables.put(table, *tables.own.rows(table))
    try:
        yield
    finally:
        for table, layer in tables.layers:
            layer.forget_own()
            layer.join(table, tables.lookups)


def _attempt(
    model: Any, folder: Path, path: Path, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> list[str]:
    try:
        with _quiet(), paddle.no_grad():
            _write_program(model, folder / NAME, arguments, keywords)
    except (MemoryError, OSError):
        raise
    except Exception as error:
        log.debug("No program of the model", exc_info=True)
        for name in PROGRAM:
            (folder / name).unlink(missing_ok=True)
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        return [f"no program: it cannot be made of this model ({first[:200]})"]
    return [f"program: {path / NAME}.pdmodel"]


def _write_program(model: Any, prefix: Path, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    given = _positional(model, arguments, keywords)
    expected = outputs_by_name(model(*arguments, **keywords))
    # Attributes that callbacks set do not belong to the model.
    stop = model.__dict__.pop("stop_training", None)
    forward = model.forward
    try:
        paddle.jit.save(model, str(prefix), input_spec=[_spec(each, name) for name, each in given])
    finally:
        # Tracing leaves its own function in the place of the model's.
        if "forward" in vars(model):
            model.forward = forward
        if stop is not None:
            model.stop_training = stop
    loaded = paddle.jit.load(str(prefix))
    loaded.eval()
    # Once more with another number of samples: a program may be right for the example only.
    _check_same(expected, loaded(*(each for _, value in given for each in _leaves(value))))
    twice = [_twice(value) for _, value in given]
    again = outputs_by_name(model(*twice) if not keywords else model(**_named(given, twice)))
    _check_same(again, loaded(*(each for value in twice for each in _leaves(value))))


def _named(given: list[tuple[str, Any]], values: list[Any]) -> dict[str, Any]:
    return {name: value for (name, _), value in zip(given, values, strict=True)}


def _positional(model: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[tuple[str, Any]]:
    """Programs take their inputs in the order of the arguments of `forward`."""
    from inspect import signature

    names = list(signature(model.forward).parameters)
    found = list(zip(names, arguments, strict=False))
    if len(arguments) > len(names):
        found = [(f"input_{place}", value) for place, value in enumerate(arguments)]
    return found + [(name, keywords[name]) for name in names if name in keywords]


def _spec(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _spec(each, f"{name}_{key}") for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return [_spec(each, f"{name}_{place}") for place, each in enumerate(value)]
    return InputSpec([None, *value.shape[1:]], dtype=value.dtype, name=name)


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in _leaves(each)]
    if isinstance(value, (tuple, list)):
        return [leaf for each in value for leaf in _leaves(each)]
    return [value]


def _twice(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _twice(each) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_twice(each) for each in value)
    return paddle.concat([value, value])


def _check_same(expected: dict[str, Any], found: Any) -> None:
    ours = [leaf for value in expected.values() for leaf in _leaves(value)]
    # A program gives the outputs of a dict as a list.
    for one, other in zip(ours, _leaves(found), strict=True):
        if not np.allclose(one.numpy(), other.numpy(), rtol=1e-4, atol=1e-5, equal_nan=True):
            raise ValueError("its outputs differ from the model's")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the pages that Paddle writes about a model it cannot trace: one line of it is reported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
