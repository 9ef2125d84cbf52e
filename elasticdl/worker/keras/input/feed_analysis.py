"""Analyzes a feed by the tf.data.Dataset that it returns: what it does to its records.

A data set knows the ones it was made from, so from the one the feed returns there is a way back to the one it was
given. If that way has only steps that give one element for each they take, in order, then the first n samples of
a shard are done when n elements have been trained. Any other step (a shuffle, a filter, a step unknown to us) and
the shard can only be counted as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from elasticdl.data.reader import Metadata
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.worker.keras.errors import definition_error, program_error

_ONE_FOR_ONE = {"Map", "Prefetch", "Scan", "AssertCardinality", "Restructured", "Model", "Finalize"}
# Steps whose result for an element may depend on earlier ones.
_NOT_OF_ONE_ALONE = {"Scan", "AssertCardinality"}
_BATCHING = {"Batch", "ParallelBatch", "PaddedBatch", "Rebatch", "DenseToRagged", "LegacyRebatch"}
_LEAVES_BATCHES = {"Unbatch", "FlatMap", "Interleave", "ParallelInterleave"}


@dataclass(frozen=True, kw_only=True)
class FeedSteps:
    """The steps between a source and a data set made from it."""

    reaches_source: bool = False
    # One sample for each record, in their order.
    in_order: bool = False
    # And each made of its record alone: it makes no difference then which ones come before and behind it.
    one_by_one: bool = False
    # Elements are batches of samples.
    batched: bool = False
    # The result is stored beyond the shard: the next shard would get the samples of this one.
    stored: bool = False


def steps_between(dataset: Any, source: Any) -> FeedSteps:
    """Both are tf.data.Datasets. What tf.data keeps of its inputs is private, and the same in all of TensorFlow 2."""
    if dataset is source:
        return FeedSteps(reaches_source=True, in_order=True, one_by_one=True)
    inputs = dataset._inputs() if hasattr(dataset, "_inputs") else []
    branches = [steps_between(one, source) for one in inputs]
    kind = type(dataset).__name__.strip("_").removesuffix("V2").removesuffix("Dataset")
    if not branches:
        return FeedSteps()
    if kind == "Zip":
        return FeedSteps(
            reaches_source=any(branch.reaches_source for branch in branches),
            # A branch from elsewhere may be shorter, and then decides where the whole ends.
            in_order=all(branch.in_order for branch in branches),
            batched=any(branch.batched for branch in branches),
            stored=any(branch.stored for branch in branches),
        )
    reaches = any(branch.reaches_source for branch in branches)
    before = replace(branches[0], reaches_source=reaches)
    if len(branches) > 1:
        before = _loose(before)
    if kind in _ONE_FOR_ONE or kind == "ParallelMap":
        alone = kind not in _NOT_OF_ONE_ALONE and not _uses_data_sets(dataset)
        before = replace(before, one_by_one=before.one_by_one and alone)
        return _loose(before) if getattr(dataset, "_deterministic", "") == "false" else before
    if kind == "Options":
        return _loose(before) if dataset.options().deterministic is False else before
    if kind == "Cache":
        return replace(before, one_by_one=False, stored=before.stored or _has_file(dataset))
    if kind in _BATCHING:
        return replace(_loose(before), batched=True)
    if kind in _LEAVES_BATCHES:
        return replace(_loose(before), batched=False)
    return replace(_loose(before), stored=before.stored or kind in ("Snapshot", "Save", "LegacySnapshot"))


def _loose(steps: FeedSteps) -> FeedSteps:
    return replace(steps, in_order=False, one_by_one=False)


def _uses_data_sets(dataset: Any) -> bool:
    """A step's function may refer to a data set, also to the one it is a step of, and go through that each time."""
    function = getattr(getattr(dataset, "_map_func", None), "function", None)
    return any(tensor.dtype == tf.variant for tensor in getattr(function, "captured_inputs", ()))


class Feed:
    """A definition's feed for one mode, with what is known of the data."""

    def __init__(self, function: Callable[..., Any], *, mode: Mode, metadata: Metadata, name: str) -> None:
        self._function = function
        self._mode = mode
        self._metadata = metadata
        self._name = name

    def apply(self, source: Any) -> tuple[Any, FeedSteps]:
        """Calls it, and raises `UserError` for what a feed must not return."""
        dataset = self._function(source, self._mode, self._metadata)
        if not isinstance(dataset, tf.data.Dataset):
            what = "nothing" if dataset is None else f"a {type(dataset).__name__}"
            raise UserError(
                f"The feed of {self._name} returns {what}.", hint="It must return a tf.data.Dataset."
            )
        steps = steps_between(dataset, source)
        if steps.batched:
            raise UserError(
                f"The feed of {self._name} returns batches.",
                hint="It must return single samples: leave batch() out, the job does it (--minibatch_size).",
            )
        if steps.stored:
            raise UserError(
                f"The feed of {self._name} stores its samples in files.",
                hint="It sees one shard of the data at a time: leave out cache(filename) and snapshot().",
            )
        spec = dataset.element_spec
        if self._mode is not Mode.PREDICTION and not (isinstance(spec, tuple) and len(spec) == 2):
            raise UserError(
                f"The feed of {self._name} returns samples of the form {_describe(spec)}.",
                hint="Each sample must be a pair (features, labels); each of the two may be a dict or a tuple.",
            )
        return dataset, steps

    def split(self, element: Any) -> tuple[Any, Any]:
        """Features and labels of a batch. Where no labels are needed, a feed need not give any."""
        if isinstance(element, tuple) and len(element) == 2:
            return element[0], element[1]
        return (element[0] if isinstance(element, tuple) and len(element) == 1 else element), None

    def explain(self, error: BaseException, *, when_called: bool = False) -> BaseException:
        """`when_called`: it failed as a whole, not on some record; another try would end the same way."""
        if isinstance(error, UserError) or not isinstance(error, Exception):
            return error
        if when_called:
            return definition_error(f"The feed of {self._name} failed", error)
        text = str(error)
        hint = ""
        if "batch" in text and ("different shapes" in text or "does not match" in text):
            hint = "All samples that the feed returns must have the same shape."
        return program_error(f"The feed of {self._name} failed", error, hint=hint)

    def ignores_its_data(self) -> UserError:
        return UserError(
            f"The feed of {self._name} does not read the data set it is given.",
            hint="What it returns must be made from its first argument.",
        )


def _has_file(dataset: Any) -> bool:
    """A cache in memory is one for each shard; its file name is an empty text."""
    filename = getattr(dataset, "_filename", None)
    return filename is None or tf.get_static_value(filename) != b""


def _describe(spec: Any) -> str:
    if isinstance(spec, tuple):
        return f"a tuple of {len(spec)}"
    if isinstance(spec, dict):
        return f"a dict with {', '.join(map(str, spec))}"
    return str(spec)
