"""The samples of a pass as columns, and batches of them as what the program is fed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from elasticdl.errors import UserError
from elasticdl.paddle_compat.config.provider import InputType, SlotKind

MASK, WEIGHTS = "@mask", "@weights"
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class _Ragged:
    """Values of all samples behind each other; sample i has those from offsets[i] to offsets[i + 1]."""

    values: Array
    offsets: Array
    weights: Array | None = None

    def batch(self, rows: Array) -> tuple[Array, Array, Array | None]:
        """Values padded with zeros, 1.0 where there is a value, and the weights if there are any."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        steps = max(1, int(lengths.max(initial=0)))
        present = np.arange(steps) < lengths[:, None]
        padded = np.zeros((len(rows), steps, *self.values.shape[1:]), self.values.dtype)
        where = (self.offsets[rows][:, None] + np.arange(steps))[present]
        padded[present] = self.values[where]
        weights = None
        if self.weights is not None:
            weights = np.zeros((len(rows), steps), np.float32)
            weights[present] = self.weights[where]
        return padded, present.astype(np.float32), weights


class PassData:
    """The samples of one pass, by slot."""

    def __init__(self, samples: Iterable[Any], slots: Mapping[str, InputType]) -> None:
        columns: dict[str, list[Any]] = {name: [] for name in slots}
        names = list(slots)
        for number, sample in enumerate(samples):
            values = sample if isinstance(sample, Mapping) else _as_mapping(sample, names)
            for name in names:
                if name not in values:
                    raise UserError(f"Sample {number} of the data provider has no slot {name}.")
                columns[name].append(values[name])
        self.count = len(columns[names[0]]) if names else 0
        self._slots = dict(slots)
        self._columns = {name: _column(name, kind, columns[name]) for name, kind in slots.items()}

    def batches(self, steps: int, order: Array) -> Iterator[tuple[int, dict[str, Array]]]:
        """All samples in `steps` batches whose sizes differ by one at most; each with its number of samples.

        All trainers take the same number of steps, however many samples each has. One with fewer samples than steps
        repeats some.
        """
        if len(order) < steps:
            order = np.resize(order, steps)
        for rows in np.array_split(order, steps):
            yield len(rows), self.feed(rows)

    def feed(self, rows: Array) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for name, column in self._columns.items():
            if not isinstance(column, _Ragged):
                found[name] = column[rows]
                continue
            values, mask, weights = column.batch(rows)
            found[name] = values
            if self._slots[name].is_sequence:
                found[name + MASK] = mask
            else:
                found[name + WEIGHTS] = mask if weights is None else weights
        return found


def _as_mapping(sample: Any, names: Sequence[str]) -> dict[str, Any]:
    values = list(sample) if isinstance(sample, (list, tuple)) else [sample]
    if len(values) != len(names):
        raise UserError(
            f"A sample of the data provider has {len(values)} slots, not {len(names)}: {', '.join(names)}."
        )
    return dict(zip(names, values, strict=True))


def _column(name: str, kind: InputType, values: list[Any]) -> Array | _Ragged:
    try:
        if kind.kind is SlotKind.IDS and not kind.is_sequence:
            return _checked_ids(name, kind, np.asarray(values, np.int64).reshape(len(values)))
        if kind.kind is SlotKind.DENSE and not kind.is_sequence:
            return np.asarray(values, np.float32).reshape(len(values), kind.dim)
        offsets = np.concatenate([[0], np.cumsum([len(each) for each in values])]).astype(np.int64)
        if kind.kind is SlotKind.DENSE:
            flat = [row for each in values for row in each]
            return _Ragged(values=np.asarray(flat, np.float32).reshape(-1, kind.dim), offsets=offsets)
        weights = None
        entries = [entry for each in values for entry in each]
        if kind.kind is SlotKind.SPARSE_FLOAT:
            weights = np.asarray([entry[1] for entry in entries], np.float32)
            entries = [entry[0] for entry in entries]
        ids = _checked_ids(name, kind, np.asarray(entries, np.int64).reshape(len(entries)))
        return _Ragged(values=ids, offsets=offsets, weights=weights)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"The slot {name} of the data provider is not a {kind.kind.value}: {error}"
        ) from error


def _checked_ids(name: str, kind: InputType, ids: Array) -> Array:
    wrong = ids[(ids < 0) | (ids >= kind.dim)]
    if wrong.size:
        raise UserError(f"The slot {name} has the id {wrong[0]}, but its type allows 0 to {kind.dim - 1}.")
    return ids
