"""Readers that a model definition brings along become runs of sample indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from elasticdl.data.custom_reader import DataReader, ShardsReader, Task, adapt_custom_reader
from elasticdl.data.dataset import open_reader
from elasticdl.data.reader import Metadata
from elasticdl.errors import UserError


class Tables(DataReader):
    """Two tables; the records of the second are numbered from 100."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.asked: list[tuple[str, int, int]] = []

    def create_shards(self) -> dict[str, tuple[int, int]]:
        return {"first": (0, 5), "empty": (0, 0), "second": (100, 3)}

    def read_records(self, task: Task) -> Iterable[Any]:
        self.asked.append((task.shard.name, task.shard.start, task.shard.end))
        assert (task.shard_name, task.start, task.end) == self.asked[-1]
        for number in range(task.shard.start, task.shard.end):
            yield f"{task.shard.name}:{number}".encode()

    @property
    def metadata(self) -> Metadata:
        return Metadata(column_names=("a",))

    @property
    def records_output_types(self) -> str:
        return "string"


def test_shards_are_one_run_of_indices() -> None:
    reader = adapt_custom_reader(Tables(), "origin")
    assert len(reader) == 8
    assert list(reader.read(3, 7)) == [b"first:3", b"first:4", b"second:100", b"second:101"]
    assert list(reader.read(7, 8)) == [b"second:102"]
    assert list(reader.read(8, 8)) == []


def test_a_range_is_one_task_a_shard() -> None:
    tables = Tables()
    reader = adapt_custom_reader(tables, "origin")
    tables.asked.clear()
    list(reader.read(0, 8))
    assert tables.asked == [("first", 0, 5), ("second", 100, 103)]


def test_attributes_of_custom_reader_are_kept() -> None:
    reader = adapt_custom_reader(Tables(), "origin")
    assert reader.origin == "origin"
    assert reader.metadata == Metadata(column_names=("a",))
    assert isinstance(reader, ShardsReader)
    assert reader.records_output_types == "string"


@pytest.mark.parametrize(
    ("record", "kind"),
    [(b"x", "bytes"), ("x", "bytes"), (["1", "2"], "row"), ((1, 2), "row"), ({"a": 1}, "columns")],
)
def test_the_kind_of_records_is_that_of_the_first(record: Any, kind: str) -> None:
    class One:
        def create_shards(self) -> dict[str, tuple[int, int]]:
            return {"s": (0, 1)}

        def read_records(self, task: Task) -> Iterable[Any]:
            return [record]

    assert adapt_custom_reader(One(), "origin").kind == kind


def test_metadata_of_another_make_gives_its_names() -> None:
    class Odps:
        def create_shards(self) -> dict[str, tuple[int, int]]:
            return {"s": (0, 1)}

        def read_records(self, task: Task) -> Iterable[Any]:
            return [["1", "2"]]

        class metadata:
            column_names = ("x", "y")

    assert adapt_custom_reader(Odps(), "origin").metadata.column_names == ("x", "y")


@pytest.mark.parametrize(("given", "words"), [(2, "2 instead of 3"), (4, "more than 3")])
def test_the_number_of_records_is_checked(given: int, words: str) -> None:
    class Miscounting:
        def create_shards(self) -> dict[str, tuple[int, int]]:
            return {"s": (0, 3)}

        def read_records(self, task: Task) -> Iterable[Any]:
            # Right for the first look at one record.
            return iter([b"x"] * (1 if task.end == 1 else given))

    reader = adapt_custom_reader(Miscounting(), "origin")
    with pytest.raises(UserError, match=words) as error:
        list(reader.read(0, 3))
    assert "Miscounting" in error.value.message


def test_length_and_read_are_enough() -> None:
    class Plain:
        def __len__(self) -> int:
            return 10

        def read(self, start: int, end: int) -> list[list[int]]:
            return [[number] for number in range(start, end)]

    reader = adapt_custom_reader(Plain(), "origin")
    assert len(reader) == 10
    assert list(reader.read(2, 4)) == [[2], [3]]
    assert reader.kind == "row"


def test_a_reader_passes_through(tmp_path: Path, write_recordio: Callable[..., Path]) -> None:
    reader = open_reader(str(write_recordio(tmp_path / "x.recordio", [b"x"])))
    assert adapt_custom_reader(reader, "origin") is reader


@pytest.mark.parametrize("made", [None, [b"x"], {"a": 1}, "path"])
def test_anything_else_is_an_error(made: object) -> None:
    with pytest.raises(
        UserError, match=f"returned {type(made).__name__}, which has no create_shards"
    ) as error:
        adapt_custom_reader(made, "origin")
    assert "DataReader" in error.value.hint


@pytest.mark.parametrize("shards", [None, [1, 2], {"a": 3}, {"a": ("x", 2)}, {"a": (0, -1)}])
def test_shards_of_another_form_are_an_error(shards: object) -> None:
    class Wrong:
        def create_shards(self) -> object:
            return shards

        def read_records(self, task: Task) -> Iterable[Any]:
            return []

    with pytest.raises(UserError, match="create_shards of Wrong returned something else"):
        adapt_custom_reader(Wrong(), "origin")


def test_error_of_custom_reader_is_raised_unchanged() -> None:
    class Failing(Tables):
        def read_records(self, task: Task) -> Iterable[Any]:
            if task.end > 1:
                raise RuntimeError("no connection")
            return [b"x"]

    with pytest.raises(RuntimeError, match="no connection"):
        list(adapt_custom_reader(Failing(), "origin").read(0, 5))
