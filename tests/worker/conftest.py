"""Readers and model definitions without files, for the tests of workers."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from elasticdl.data.reader import BadRange, BadRecords, Reader
from elasticdl.worker.definition import ModelDefinition

# An environment has some of the frameworks; the folder of a framework has its tests.
collect_ignore = [
    folder
    for folder, package in (("torch", "torch"), ("keras", "tensorflow"), ("paddle", "paddle"))
    if importlib.util.find_spec(package) is None
]


@dataclass(kw_only=True)
class MemoryReader(Reader):
    """Records in a list; ranges of them can be said to be corrupt."""

    records: list[Any] = field(default_factory=list)
    corrupt: list[tuple[int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.records)

    def read(self, start: int, end: int) -> Iterator[Any]:
        for index in range(start, min(end, len(self.records))):
            for first, behind in self.corrupt:
                if first <= index < behind:
                    raise BadRecords(
                        BadRange(start=index, end=behind, where=f"memory:{first}", reason="zeros")
                    )
            yield self.records[index]


@pytest.fixture
def memory_reader() -> Callable[..., MemoryReader]:
    def make(records: list[Any], corrupt: list[tuple[int, int]] | None = None, **fields: Any) -> MemoryReader:
        return MemoryReader(origin="memory", records=records, corrupt=corrupt or [], **fields)

    return make


@pytest.fixture
def start_table_servers() -> Callable[[], AbstractContextManager[tuple[list[Any], list[str]]]]:
    """Starts two parameter servers of this process behind real ports: their stores, and their addresses."""
    return _two_servers


@pytest.fixture
def table_servers() -> Iterator[tuple[list[Any], list[str]]]:
    with _two_servers() as servers:
        yield servers


@contextmanager
def _two_servers() -> Iterator[tuple[list[Any], list[str]]]:
    from elasticdl.ps.core.buckets import first_map
    from elasticdl.ps.replication.replica_log import Routes
    from elasticdl.ps.server.parameter_server import ParameterServer
    from elasticdl.ps.server.store import Store
    from elasticdl.ps.storage.bucket_store import ServerSettings

    stores = [Store(ServerSettings(max_bad_gradients=2), number=number) for number in range(2)]
    servers = [ParameterServer(token="token") for _ in stores]
    for store, server in zip(stores, servers, strict=True):
        store.close(1)
        store.peers.update_routes(Routes(map=first_map(2, replicas=1)))
        store.open()
        server.serve(store)
    yield stores, [server.address for server in servers]
    for server in servers:
        server.stop()


@pytest.fixture
def make_definition() -> Callable[..., ModelDefinition]:
    """A definition made of functions given as keywords; those that are left out are not to be called."""

    def missing(*_: Any, **__: Any) -> Any:
        raise AssertionError("this test gives the definition no such function")

    def make(**functions: Any) -> ModelDefinition:
        required = ("model", "feed", "loss", "optimizer", "eval_metrics_fn")
        return ModelDefinition(
            name="test.definition.custom_model",
            path=Path("definition.py"),
            **{name: functions.pop(name, missing) for name in required},
            **functions,
        )

    return make
