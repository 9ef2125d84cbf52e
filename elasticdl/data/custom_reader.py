"""Readers that a model definition brings along.

`custom_data_reader(data_origin, records_per_task=None, **kwargs)` of a model definition may return any of
three:

- a `DataReader`: shards by name in `create_shards`, their records from `read_records(task)`. The base class
  is there to inherit from; what counts is the two methods.
- anything with `__len__` and `read(start, end)`; with `read_columns(start, end)` too, if it has arrays of many.
- a `Reader` of this package.

Its shards, in the order it names them, are one run of sample indices here; a range of it becomes one task
for every shard it touches. That each task gives exactly the records it names is checked, because everything
that is counted later rests on it.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elasticdl.data.reader import Metadata, Reader, Record, RecordKind
from elasticdl.errors import UserError


@dataclass(frozen=True, kw_only=True)
class TaskShard:
    """Records [start, end) of a named shard."""

    name: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class Task:
    """The request to `read_records`: `task.shard`; the same under the names that older readers use."""

    shard: TaskShard

    @property
    def start(self) -> int:
        return self.shard.start

    @property
    def end(self) -> int:
        return self.shard.end

    @property
    def shard_name(self) -> str:
        return self.shard.name


class DataReader(abc.ABC):
    """To inherit from in a model definition."""

    def __init__(self, **kwargs: Any) -> None:
        self.kwargs = kwargs

    @abc.abstractmethod
    def create_shards(self) -> Mapping[str, tuple[int, int]]:
        """Returns, by the name of each shard, the number of its first record and the count of its records."""

    @abc.abstractmethod
    def read_records(self, task: Task) -> Iterable[Record]:
        """The records [task.shard.start, task.shard.end) of the shard task.shard.name, in order.

        May be called from several threads at once.
        """

    @property
    def records_output_types(self) -> Any:
        """The type of a record, as a framework names it; None leaves it to what the first record is."""
        return None

    @property
    def metadata(self) -> Any:
        """Returns the third argument of `feed`; its `column_names`, if any, are the names of the columns."""
        return Metadata()


@dataclass(kw_only=True)
class ShardsReader(Reader):
    """A reader with `create_shards` and `read_records`, as a run of sample indices."""

    wrapped: Any = None
    records_output_types: Any = None
    shards: tuple[TaskShard, ...] = ()
    _starts: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        sizes = [shard.end - shard.start for shard in self.shards]
        self._starts = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))

    def __len__(self) -> int:
        return int(self._starts[-1])

    def read(self, start: int, end: int) -> Iterator[Record]:
        if not 0 <= start <= end <= len(self):
            raise IndexError(f"[{start}, {end}) is not inside the {len(self)} samples of {self.origin}")
        return self._read(start, end)

    def _read(self, start: int, end: int) -> Iterator[Record]:
        number = int(np.searchsorted(self._starts, start, side="right")) - 1
        while start < end:
            shard, first = self.shards[number], int(self._starts[number])
            stop = min(end, int(self._starts[number + 1]))
            if start < stop:
                offset = shard.start - first
                yield from self._task(TaskShard(name=shard.name, start=start + offset, end=stop + offset))
            start = stop
            number += 1

    def _task(self, shard: TaskShard) -> Iterator[Record]:
        wanted, found = shard.end - shard.start, 0
        for record in self.wrapped.read_records(Task(shard=shard)):
            found += 1
            if found > wanted:
                raise self._miscounted(shard, f"more than {wanted}")
            yield record
        if found < wanted:
            raise self._miscounted(shard, f"{found} instead of {wanted}")

    def _miscounted(self, shard: TaskShard, count: str) -> UserError:
        return UserError(
            f"read_records of {type(self.wrapped).__name__} gave {count} records for "
            f"[{shard.start}, {shard.end}) of shard {shard.name!r}.",
            hint="It must give exactly those that the task names, and create_shards must tell their right number.",
        )


@dataclass(kw_only=True)
class LengthReader(Reader):
    """Anything with `__len__` and `read(start, end)`."""

    wrapped: Any = None

    def __len__(self) -> int:
        return len(self.wrapped)

    def read(self, start: int, end: int) -> Iterator[Record]:
        found = 0
        for record in self.wrapped.read(start, end):
            found += 1
            if found > end - start:
                raise self._miscounted(start, end, f"more than {end - start}")
            yield record
        if found < end - start:
            raise self._miscounted(start, end, f"{found} instead of {end - start}")

    def columns(self, start: int, end: int) -> Mapping[str, Any] | None:
        read = getattr(self.wrapped, "read_columns", None)
        if read is None:
            return None
        found: Mapping[str, Any] = read(start, end)
        for name, column in found.items():
            if len(column) != end - start:
                raise UserError(
                    f"read_columns({start}, {end}) of {type(self.wrapped).__name__} gave {len(column)} values of "
                    f"{name!r}.",
                    hint="It must give exactly those of the range, for every column.",
                )
        return found

    def _miscounted(self, start: int, end: int, count: str) -> UserError:
        return UserError(
            f"read({start}, {end}) of {type(self.wrapped).__name__} gave {count} records.",
            hint="It must give exactly those of the range, and len() must tell their right number.",
        )


def adapt_custom_reader(made: Any, origin: str) -> Reader:
    """Converts the result of `custom_data_reader` to a `Reader`. Raises `UserError` if it is of no known kind."""
    if isinstance(made, Reader):
        return made
    metadata = _metadata(getattr(made, "metadata", None))
    if callable(getattr(made, "read", None)) and hasattr(made, "__len__"):
        plain = LengthReader(origin=origin, metadata=metadata, wrapped=made)
        plain.kind = _kind(made, plain)
        return plain
    missing = [name for name in ("create_shards", "read_records") if not callable(getattr(made, name, None))]
    if missing:
        raise UserError(
            f"custom_data_reader returned {type(made).__name__}, which has no {' and no '.join(missing)}.",
            hint="Return an object with create_shards() and read_records(task) (inherit from "
            "elasticdl.data.custom_reader.DataReader), or one with __len__() and read(start, end).",
        )
    reader = ShardsReader(
        origin=origin,
        metadata=metadata,
        wrapped=made,
        records_output_types=getattr(made, "records_output_types", None),
        shards=_shards(made),
    )
    reader.kind = _kind(made, reader)
    return reader


def _shards(made: Any) -> tuple[TaskShard, ...]:
    created = made.create_shards()
    shards = []
    try:
        for name, (start, count) in dict(created).items():
            if int(count) < 0:
                raise ValueError(f"shard {name!r} has {count} records")
            shards.append(TaskShard(name=str(name), start=int(start), end=int(start) + int(count)))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"create_shards of {type(made).__name__} returned something else than "
            f"{{name: (first record, number of records)}}: {error}.",
        ) from error
    return tuple(shards)


def _metadata(given: Any) -> Metadata:
    if isinstance(given, Metadata):
        return given
    names = tuple(str(name) for name in getattr(given, "column_names", None) or ())
    return Metadata(column_names=names)


def _kind(made: Any, reader: Reader) -> RecordKind:
    """Returns the kind of the records: as declared by the reader, or that of the first record."""
    said = getattr(made, "kind", None)
    if said in ("bytes", "row", "columns"):
        kind: RecordKind = said
        return kind
    first = next(reader.read(0, 1), None) if len(reader) else None
    if isinstance(first, Mapping):
        return "columns"
    return "bytes" if isinstance(first, (bytes, str)) else "row"
