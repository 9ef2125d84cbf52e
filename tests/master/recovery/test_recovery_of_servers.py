"""A master that has lost the last seconds asks its parameter servers, and believes those that answer, even if others
do not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode
from elasticdl.master.master import Master
from elasticdl.ps.core.buckets import BucketMap, first_map
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.parameter_server import ParameterServer
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import ServerSettings

TOKEN = "a token for tests"
UNREACHABLE = "127.0.0.1:1"
USUAL = first_map(2, replicas=2)
# Roles were swapped since the snapshot.
NEWEST = replace(USUAL, version=7, primary=USUAL.backup, backup=USUAL.primary)


@pytest.fixture
def address_of() -> Iterator[Callable[..., str]]:
    """Of a server that has a map."""
    started: list[ParameterServer] = []

    def start(number: int, known: BucketMap, *, generation: int = 1) -> str:
        store = Store(ServerSettings(), number=number)
        store.close(generation)
        store.peers.update_routes(Routes(map=known))
        store.open()
        server = ParameterServer(token=TOKEN)
        server.serve(store)
        started.append(server)
        return server.address

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def back(tmp_path: Path, nowhere: Any) -> Callable[..., Master]:
    """A master that knows of the first map, with servers at these addresses, when it has asked them."""

    def come_back(*addresses: str) -> Master:
        spec = JobSpec.build(
            job_name="back",
            model_zoo="zoo",
            model_def="a.b.c",
            training_data="data",
            num_workers=1,
            num_ps=2,
        )

        async def ask() -> Master:
            (tmp_path / "journal").mkdir()
            master = Master(spec=spec, folder=tmp_path, platform=nowhere, token=TOKEN, environment={})
            master.recover()
            for number, address in enumerate(addresses):
                master.do(JoinNode(node=f"ps-{number}", incarnation=f"i-{number}", address=address))
            assert master.state.placing.map == USUAL
            try:
                await master._recovery._ask_servers()
            finally:
                await master._servers.close()
                master._journal.close()
                master._events.close()
            return master

        return asyncio.run(ask())

    return come_back


def placed(master: Master) -> BucketMap:
    assert master.state.placing.map is not None
    return master.state.placing.map


def test_one_of_two_answers(address_of: Callable[..., str], back: Callable[..., Master]) -> None:
    master = back(address_of(0, NEWEST), UNREACHABLE)
    assert placed(master).primary == NEWEST.primary
    assert master.state.generation == 1
    # The other may have seen some more, and must not take what comes next for one of those.
    assert placed(master).version > NEWEST.version + 100


def test_both_answer(address_of: Callable[..., str], back: Callable[..., Master]) -> None:
    master = back(address_of(0, replace(USUAL, version=6)), address_of(1, NEWEST))
    assert placed(master) == NEWEST


def test_one_knows_that_the_model_was_lost(
    address_of: Callable[..., str], back: Callable[..., Master]
) -> None:
    assert back(UNREACHABLE, address_of(1, USUAL, generation=3)).state.generation == 4


def test_no_server_answers(back: Callable[..., Master]) -> None:
    """Then nothing is known of newer maps, which would be overruled by an old one."""
    assert placed(back(UNREACHABLE, UNREACHABLE)) == USUAL
