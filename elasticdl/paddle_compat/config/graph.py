"""The graph that a configuration describes while it runs: layers, settings, data sources, outputs.

Layers are descriptions first. Whether a data layer has ids, vectors or sequences is known only when the data provider
has been loaded, after the configuration; the program is built then, from the outputs backwards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from elasticdl.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Value:
    """The output of a layer for a batch.

    `tensor` is [batch, size], or [batch, steps, size] with `mask` [batch, steps] for sequences. With `is_ids` it has
    ids without the last axis; with `weights` it is a sparse vector: ids and their values, [batch, entries].
    """

    tensor: Any
    size: int
    mask: Any = None
    is_ids: bool = False
    weights: Any = None


Build = Callable[[Any, "LayerOutput", Sequence[Value]], Value]


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerOutput:
    """A layer of a configuration; `build` makes its operators."""

    name: str
    kind: str
    size: int
    parents: tuple[LayerOutput, ...] = ()
    build: Build | None = None
    # Costs are summed over the samples of a batch.
    is_cost: bool = False


@dataclass(kw_only=True)
class Settings:
    """The arguments of `settings(...)`."""

    batch_size: int = 1
    learning_rate: float = 1e-3
    learning_method: Any = None
    regularization: Any = None
    gradient_clipping_threshold: float | None = None
    algorithm: str = "sgd"


@dataclass(frozen=True, kw_only=True)
class DataSources:
    """The arguments of `define_py_data_sources2(...)`."""

    train_list: str | None
    test_list: str | None
    module: str
    obj: str
    args: Mapping[str, Any]


@dataclass(kw_only=True)
class Configuration:
    """Filled by the functions of `trainer_config_helpers` while a configuration runs."""

    arguments: Mapping[str, str] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    sources: DataSources | None = None
    layers: list[LayerOutput] = field(default_factory=list)
    outputs: list[LayerOutput] = field(default_factory=list)
    # The arguments of `inputs(…)`.
    named_inputs: list[LayerOutput] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    test_only: bool = False

    def next_name(self, prefix: str) -> str:
        number = self.counts.get(prefix, 0)
        self.counts[prefix] = number + 1
        return f"__{prefix}_{number}__"

    def add(self, layer: LayerOutput) -> LayerOutput:
        """Raises `UserError` for the name of another layer: the two would share their parameters."""
        if any(each.name == layer.name for each in self.layers):
            raise UserError(
                f"Two layers have the name {layer.name}.",
                hint="To share a parameter, give both the same ParamAttr(name=…).",
            )
        self.layers.append(layer)
        return layer

    def reachable(self) -> list[LayerOutput]:
        """The layers that the outputs need, in the order in which they were described."""
        needed: set[int] = set()
        ahead = list(self.outputs)
        while ahead:
            layer = ahead.pop()
            if id(layer) not in needed:
                needed.add(id(layer))
                ahead += layer.parents
        return [each for each in self.layers if id(each) in needed]

    @property
    def inputs(self) -> list[LayerOutput]:
        """Data layers in the order of a provider's slots: that of `inputs(…)`, or else depth first from the outputs.

        Raises `UserError` if `inputs(…)` has left one out.
        """
        found: dict[str, LayerOutput] = {}
        seen: set[int] = set()
        ahead = list(reversed(self.outputs))
        while ahead:
            layer = ahead.pop()
            if id(layer) in seen:
                continue
            seen.add(id(layer))
            if layer.kind == "data":
                found[layer.name] = layer
            ahead += reversed(layer.parents)
        if not self.named_inputs:
            return list(found.values())
        named = {each.name: each for each in self.named_inputs}
        if absent := [name for name in found if name not in named]:
            raise UserError(f"inputs(…) leaves out {', '.join(absent)}, which the outputs need.")
        return list(named.values())


_current: list[Configuration] = []


def current() -> Configuration:
    """The configuration that runs at the moment."""
    if not _current:
        raise RuntimeError("trainer_config_helpers are for configurations: run `paddle train --config=FILE`")
    return _current[-1]


class Running:
    """While it is entered, `trainer_config_helpers` describe this configuration."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    def __enter__(self) -> Configuration:
        _current.append(self._configuration)
        return self._configuration

    def __exit__(self, *error: object) -> None:
        _current.pop()


def replace_value(value: Value, **changes: Any) -> Value:
    return dataclasses.replace(value, **changes)
