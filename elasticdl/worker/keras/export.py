"""Writing a model for use elsewhere: a SavedModel folder, or one file where the name ends in .keras or .h5.

It is written beside its place and then moved there, so that readers find the old one or the new one whole.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow as tf

from elasticdl.errors import UserError
from elasticdl.worker.keras.errors import definition_error, summary

_FILES = (".keras", ".h5")


def export_model(model: Any, path: Path, features: Any, *, name: str) -> list[str]:
    """Returns one line a thing written."""
    single = path.suffix in _FILES
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.parent / f".{path.stem}.{os.getpid()}.draft{path.suffix if single else ''}"
        _remove(draft)
    try:
        with _disk_errors(path), _silence():
            if single:
                model.save(draft)
            else:
                _save_folder(model, draft, features)
            _move(draft, path)
    except (UserError, OSError):
        raise
    except Exception as error:
        raise definition_error(
            f"The model {name} cannot be exported to {path}",
            error,
            hint="A class of your own needs get_config() for a .keras file; a SavedModel folder can do without."
            if single
            else "",
        ) from error
    finally:
        _remove(draft)
    what = "Keras model" if single else "SavedModel"
    return [f"{what}: {path}"]


def _save_folder(model: Any, folder: Path, features: Any) -> None:
    if hasattr(model, "_call_has_training_arg"):
        # Keras 3. Only models that were made of layers know what they are applied to; the example tells for all.
        signature = _specs(features, _input_names(model))
        model.export(str(folder), format="tf_saved_model", input_signature=[signature], verbose=False)
    else:
        model.save(str(folder), save_format="tf", include_optimizer=False)


def _specs(features: Any, names: list[str]) -> Any:
    """Types of the inputs, with the names by which clients of the SavedModel give them: the keys of a dict, else those
    of the model's inputs. Without names TensorFlow would make up `args_0`, `args_0_1`, in an order of its own.
    """
    leaves = tf.nest.flatten(features)
    if isinstance(features, dict) and len(leaves) == len(features):
        # In the order of `flatten`.
        names = sorted(features)
    given = names if len(names) == len(leaves) else [None] * len(leaves)
    specs = [
        tf.TensorSpec([None, *leaf.shape[1:]], leaf.dtype, name=name)
        for leaf, name in zip(leaves, given, strict=True)
    ]
    return tf.nest.pack_sequence_as(features, specs)


def _input_names(model: Any) -> list[str]:
    """Returns the input names of a model that was made of layers; others have none."""
    try:
        return [str(one.name) for one in tf.nest.flatten(model.inputs or [])]
    except (AttributeError, ValueError):
        return []


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Both versions warn that the model was not compiled. It never is, here."""
    logger = logging.getLogger("tensorflow")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _move(draft: Path, path: Path) -> None:
    old = path.parent / f".{path.name}.{os.getpid()}.old"
    if path.is_dir() and not path.is_symlink():
        # A folder cannot take the place of another one in one step.
        _remove(old)
        os.rename(path, old)
    os.replace(draft, path)
    _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise UserError(
            f"The model cannot be written to {path}: {error.strerror or error}.",
            hint="Free some space, or name another place with --output." if full else "",
        ) from error
    except tf.errors.OpError as error:
        raise UserError(f"The model cannot be written to {path}: {summary(error)}") from error
