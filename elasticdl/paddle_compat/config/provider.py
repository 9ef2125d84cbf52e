"""`paddle.trainer.PyDataProvider2`: the decorator of data providers, and the types of their slots."""

from __future__ import annotations

import enum
import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean

log = logging.getLogger("elasticdl.paddle")


class SlotKind(enum.Enum):
    DENSE = "dense vector"
    IDS = "integer"
    SPARSE_BINARY = "sparse binary vector"
    SPARSE_FLOAT = "sparse float vector"


@dataclass(frozen=True, kw_only=True)
class InputType:
    """The type of one slot; `dim` is the size of a vector or the number of ids."""

    dim: int
    kind: SlotKind
    is_sequence: bool = False


def dense_vector(dim: int) -> InputType:
    return InputType(dim=dim, kind=SlotKind.DENSE)


def dense_vector_sequence(dim: int) -> InputType:
    return InputType(dim=dim, kind=SlotKind.DENSE, is_sequence=True)


def integer_value(value_range: int) -> InputType:
    return InputType(dim=value_range, kind=SlotKind.IDS)


def integer_value_sequence(value_range: int) -> InputType:
    return InputType(dim=value_range, kind=SlotKind.IDS, is_sequence=True)


def sparse_binary_vector(dim: int) -> InputType:
    return InputType(dim=dim, kind=SlotKind.SPARSE_BINARY)


def sparse_float_vector(dim: int) -> InputType:
    return InputType(dim=dim, kind=SlotKind.SPARSE_FLOAT)


dense_slot = dense_vector
index_slot = integer_value
integer_sequence = integer_value_sequence
sparse_non_value_slot = sparse_binary_vector
sparse_value_slot = sparse_float_vector
sparse_vector = sparse_float_vector


class CacheType:
    NO_CACHE = 0
    CACHE_PASS_IN_MEM = 1


class ProviderSettings:
    """The first argument of a provider's functions; they may set `input_types` and anything else on it."""

    def __init__(self, input_types: Any) -> None:
        self.input_types = input_types
        # Both names are in use.
        self.slots: Any = None
        self.logger = log

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)


@dataclass(frozen=True, kw_only=True)
class Provider:
    """A function `process(settings, filename)` with what its decorator says."""

    function: Callable[..., Iterator[Any]]
    input_types: Any
    init_hook: Callable[..., Any] | None
    should_shuffle: bool
    is_cached: bool

    def open(self, file_list: str, *, is_train: bool, arguments: Mapping[str, Any]) -> ProviderSettings:
        """Raises `UserError` if the list, or a file in it, is missing."""
        settings = ProviderSettings(self.input_types)
        if self.init_hook:
            self.init_hook(settings, file_list=read_list(file_list), is_train=is_train, **arguments)
        if settings.input_types is None:
            settings.input_types = settings.slots
        if settings.input_types is None:
            raise UserError(
                "The data provider says no input_types: give them to @provider, or set them in init_hook."
            )
        return settings

    def samples(self, settings: ProviderSettings, file_list: str) -> Iterator[Any]:
        for file in read_list(file_list):
            yield from self.function(settings, file)


def provider(
    input_types: Any = None,
    should_shuffle: bool | None = None,
    pool_size: int = -1,
    min_pool_size: int = -1,
    can_over_batch_size: bool = True,
    calc_batch_size: Any = None,
    cache: int = CacheType.NO_CACHE,
    check: bool = False,
    check_fail_continue: bool = False,
    init_hook: Callable[..., Any] | None = None,
    slots: Any = None,
    **unknown: Any,
) -> Callable[[Callable[..., Iterator[Any]]], Provider]:
    """Samples of a pass are shuffled all together, so the sizes of pools have no effect."""
    for name in unknown:
        known = inspect.signature(provider).parameters
        raise UserError(f"provider has no option {name}.{did_you_mean(name, known)}")
    if calc_batch_size is not None:
        log.warning("provider: calc_batch_size has no effect; each sample counts as one")
    if input_types is not None and slots is not None:
        raise UserError("provider takes input_types or slots, its former name, not both.")
    types = slots if input_types is None else input_types

    def wrap(function: Callable[..., Iterator[Any]]) -> Provider:
        return Provider(
            function=function,
            input_types=types,
            init_hook=init_hook,
            should_shuffle=should_shuffle is not False,
            is_cached=cache == CacheType.CACHE_PASS_IN_MEM,
        )

    return wrap


def read_list(file_list: str) -> list[str]:
    try:
        files = [line.strip() for line in Path(file_list).read_text().splitlines() if line.strip()]
    except OSError as error:
        raise UserError(
            f"The list of data files {file_list} cannot be read: {error.strerror}.",
            hint="Has the data job made the data of this node?",
        ) from error
    for file in files:
        if not Path(file).exists():
            raise UserError(f"{file_list} names {file}, which does not exist.")
    return files


def slots_of(input_types: Any, names: Sequence[str]) -> dict[str, InputType]:
    """The types by the names of the data layers: a dict says them, a list is in the order of the layers."""
    if isinstance(input_types, Mapping):
        absent = [name for name in names if name not in input_types]
        if absent:
            raise UserError(
                f"The data provider has no slot {', '.join(absent)}; it has {', '.join(map(str, input_types))}."
            )
        return {str(name): kind for name, kind in input_types.items()}
    types = list(input_types)
    if len(types) != len(names):
        raise UserError(
            f"The data provider has {len(types)} slots, and the configuration {len(names)} data layers: "
            f"{', '.join(names)}."
        )
    return dict(zip(names, types, strict=True))
