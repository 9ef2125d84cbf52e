"""Less work at the import of a framework, in every process that the tests of whole jobs start.

Python imports this module by itself where its folder is in PYTHONPATH (see `e2e/conftest.py`). TensorFlow, pyarrow and
scikit-learn import JAX, pandas and boto3 if these are installed. The environment of the tests has them, for other
tests, and that of a user usually not. They take a third of the processor time of TensorFlow's import. So these packages
do not find them; programs that import them do. The modules of a framework are objects that stay: no garbage is
collected while they are made, and none is searched for among them later.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_FRAMEWORKS = {"paddle", "sklearn", "tensorflow", "torch"}
_OPTIONAL = {"boto3", "jax", "pandas"}
# The compiled parts of pyarrow import for the module that calls them.
_WITHOUT_THEM = {"elasticdl", "keras", "pyarrow", "sklearn", "tensorboard", "tensorflow", "tensorflow_estimator"}


class FrameworkFinder:
    """Finds frameworks, as `PathFinder` does, and nothing else."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in _OPTIONAL and _importing_package() in _WITHOUT_THEM:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        if name not in _FRAMEWORKS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            _collect_nothing(spec.loader)
        return spec


def _importing_package() -> str:
    """That of the module whose statement is being executed."""
    frame = sys._getframe(1)
    names = (__name__, "importlib")
    while (package := frame.f_globals["__name__"].partition(".")[0]) in names and frame.f_back is not None:
        frame = frame.f_back
    return str(package)


def _collect_nothing(loader: object) -> None:
    execute = loader.exec_module  # type: ignore[attr-defined]

    def exec_module(module: ModuleType) -> None:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            execute(module)
        finally:
            gc.freeze()
            if was_enabled:
                gc.enable()

    loader.exec_module = exec_module  # type: ignore[attr-defined]


sys.meta_path.insert(0, FrameworkFinder())
