"""Maps a sample to the inputs of a model, by the signature of its `forward`.

A feed's features may be one tensor, a tuple, or a dict; a `forward` may take one argument or several. The
rules:

- a dict whose keys are all names of arguments is given as keyword arguments, any other dict as the one
argument;
- a tuple or list is given as positional arguments if there are as many, else as the one argument;
- anything else is the one argument.

A sample is (features, labels). In prediction mode it may be the features alone; a pair is then taken for
(features, labels) all the same, unless `forward` needs two or more arguments and the first of the pair is a
plain tensor: then the pair is two features.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.worker.batching.collate import describe

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class ModelInputs:
    def __init__(self, forward: Callable[..., Any]) -> None:
        parameters = inspect.signature(forward).parameters.values()
        positional = [p for p in parameters if p.kind in _POSITIONAL]
        any_number = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters)
        self._names = {p.name for p in parameters if p.kind is not inspect.Parameter.POSITIONAL_ONLY}
        self._needed = sum(p.default is inspect.Parameter.empty for p in positional)
        self._most = 1_000_000 if any_number else len(positional)

    def arguments(self, features: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments for the model."""
        if isinstance(features, Mapping):
            if features and self._names.issuperset(features):
                return (), dict(features)
            return (features,), {}
        # Text comes as a list, which is one feature.
        text = isinstance(features, list) and isinstance(next(iter(features), None), (str, bytes))
        if isinstance(features, (tuple, list)) and len(features) <= self._most and not text:
            return tuple(features), {}
        return (features,), {}

    def split(self, mode: Mode) -> Callable[[Any], tuple[Any, Any]]:
        """Returns the function that separates a batch of samples into features and labels."""
        return self._prediction if mode is Mode.PREDICTION else _pair

    def _prediction(self, batch: Any) -> tuple[Any, Any]:
        if type(batch) not in (tuple, list) or len(batch) != 2:
            return batch, None
        if self._needed >= 2 and not isinstance(batch[0], (tuple, list, Mapping)):
            return batch, None
        return batch[0], batch[1]


def _pair(batch: Any) -> tuple[Any, Any]:
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise UserError(
            f"The feed's samples, as a batch {describe(batch)}, are not pairs of features and labels.",
            hint="Yield (features, labels); several features go into one tuple or dict, and so do labels.",
        )
    return batch[0], batch[1]
