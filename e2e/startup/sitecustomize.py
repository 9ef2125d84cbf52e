"""Hides packages that a user's environment usually lacks from the frameworks, in processes of tests of whole jobs.

Python imports this module by itself where its folder is in PYTHONPATH (see `e2e/conftest.py`). TensorFlow, pyarrow and
scikit-learn import JAX, pandas and boto3 if these are installed. The environment of the tests has them for other tests.
They take a third of the processor time of TensorFlow's import, in hundreds of processes. Programs that import these
packages themselves find them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_OPTIONAL = {"boto3", "jax", "pandas"}
# pyarrow's compiled modules import pandas in the name of their caller.
_IMPORTERS = {
    "elasticdl",
    "keras",
    "pyarrow",
    "sklearn",
    "tensorboard",
    "tensorflow",
    "tensorflow_estimator",
}


class OptionalPackages:
    """Reports optional packages as missing to the packages that would import them."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in _OPTIONAL and _importing_package() in _IMPORTERS:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def _importing_package() -> str:
    """Returns the package of the module whose import statement runs."""
    frame = sys._getframe(1)
    names = (__name__, "importlib")
    while (package := frame.f_globals["__name__"].partition(".")[0]) in names and frame.f_back is not None:
        frame = frame.f_back
    return str(package)


sys.meta_path.insert(0, OptionalPackages)
