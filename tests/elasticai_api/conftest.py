"""Programs in miniature: no job in the environment unless a test makes one."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from elasticai_api.common.constants import PodEnv
from elasticai_api.common.shards import DataShardService
from elasticai_api.proto.elasticai_api_pb2_grpc import add_MasterServicer_to_server
from elasticai_api.proto.progress_pb2_grpc import add_ProgressServicer_to_server
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import ObserveNode
from elasticdl.master.master import Master
from elasticdl.master.services.shard_fetches import ShardFetches
from elasticdl.master.services.shard_service import PublicShardService, ShardService
from elasticdl.platforms.platform import NodePhase, NodeRequest, NodeStatus, Platform
from elasticdl.wire.channel import add_port, new_aio_server
from elasticdl.wire.http2.server import UnaryServer
from elasticdl.wire.reserved_ports import KeptPort
from tests.master.node_statuses import node_status
from tests.serving_thread import ServingThread

VARIABLES = (
    PodEnv.MASTER_ADDR,
    PodEnv.DLROVER_MASTER_ADDR,
    PodEnv.TOKEN_FILE,
    PodEnv.WORKER_ID,
    PodEnv.WORKER_TYPE,
    PodEnv.PATIENCE,
)


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def train() -> Callable[..., list[int]]:
    """Goes through what a service gives, reports every batch, and returns the samples in their order."""

    def run(service: DataShardService, *, shards: int | None = None) -> list[int]:
        samples: list[int] = []
        batch = 0
        while shards is None or shards > 0:
            shard = service.fetch_shard()
            if shard is None:
                break
            for index in shard.indices or range(shard.start, shard.end):
                samples.append(index)
                batch += 1
                if batch == service.batch_size:
                    service.report_batch_done()
                    batch = 0
            shards = None if shards is None else shards - 1
        if batch:
            service.report_batch_done(batch)
        service.flush()
        return samples

    return run


class Nowhere(Platform):
    """A platform on which nothing ever happens."""

    async def start(self, request: NodeRequest) -> None: ...

    async def stop(self, name: str, *, grace_seconds: float) -> None: ...

    async def nodes(self) -> list[NodeStatus]:
        return []

    async def events(self) -> AsyncIterator[NodeStatus]:
        await asyncio.Event().wait()
        yield  # type: ignore[misc]

    async def close(self) -> None: ...


class Losses:
    """How many answers are still to be lost, and how many calls there were, at both ports."""

    answers_to_lose = 0
    fetches = 0
    reports = 0


class LosingAnswers(ShardService):
    """Does what it is asked to, and now and then the answer gets lost on its way."""

    losses: Losses

    async def get_dataset_task(self, request: Any, context: Any) -> Any:
        return await self._answer(await super().get_dataset_task(request, context), context)

    async def Fetch(self, request: Any, context: Any) -> Any:
        self.losses.fetches += 1
        return await self._answer(await super().Fetch(request, context), context)

    async def Report(self, request: Any, context: Any) -> Any:
        self.losses.reports += 1
        return await self._answer(await super().Report(request, context), context)

    async def report_dataset_task_result(self, request: Any, context: Any) -> Any:
        return await self._answer(await super().report_dataset_task_result(request, context), context)

    async def _answer(self, answer: Any, context: Any) -> Any:
        if self.losses.answers_to_lose:
            self.losses.answers_to_lose -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
        return answer


class PublicLosingAnswers(LosingAnswers, PublicShardService):
    """The same at the port without a token."""


class RunningMaster:
    """The real master of a job, its journal and its ports, in a thread; every caller counts as a node.

    Stopped, it is as a killed one: what is not in the journal is gone. Started again, it takes the same ports.
    """

    token = "secret"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._spec = JobSpec.build(job_name="shards", job_command="true", num_workers=2)
        self._ports = [KeptPort(), KeptPort()]
        self.master: Master | None = None
        # Instead of a journal, if there is one.
        self.kept: str | None = None
        (folder / "journal").mkdir()
        (folder / "token").write_text(self.token)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._ports[0].number}"

    @property
    def public_address(self) -> str:
        return f"127.0.0.1:{self._ports[1].number}"

    def start(self) -> None:
        self._thread = ServingThread(self._serve)

    def stop(self) -> None:
        self._thread.stop()

    def close(self) -> None:
        self.stop()
        for port in self._ports:
            port.close()

    def do(self, what: Callable[[Master], Any]) -> Any:
        """Something that has to be done in the master's own thread."""

        def inside() -> Any:
            assert self.master is not None
            return what(self.master)

        return self._thread.do(inside)

    def observe(self, node: str, phase: NodePhase, reason: str = "") -> None:
        status = {"name": node, "role": node.split("-")[0], "phase": phase.value, "reason": reason}
        self.do(
            lambda master: master.do(
                ObserveNode(status=node_status({**status, "exit_code": None, "message": ""}))
            )
        )

    def done(self, dataset: str) -> int:
        return int(self.do(lambda master: master.state.ledger.samples_done(dataset)))

    def held_by(self, worker: str) -> list[tuple[int, int]]:
        return list(
            self.do(
                lambda master: [(lease.start, lease.end) for lease in master.state.ledger.held_by(worker)]
            )
        )

    async def _serve(self, ready: Callable[[], None], stopping: asyncio.Event) -> None:
        if self.kept is not None:
            shutil.rmtree(self.folder / "journal")
        master = Master(
            spec=self._spec, folder=self.folder, platform=Nowhere(), token=self.token, environment={}
        )
        self.master = master
        master.recover(self.kept)
        # There are the nodes that there were: no platform is involved here.
        master._recovery.nodes_listed = True
        fetches = ShardFetches(lambda lease: master.state.ledger.is_leased(lease))
        own, public = LosingAnswers(master, fetches), PublicLosingAnswers(master, fetches)
        own.losses = public.losses = self.service = Losses()
        own_server, public_server = new_aio_server(self.token), UnaryServer()
        servers: tuple[Any, ...] = (own_server, public_server)
        add_port(own_server, self.address)
        public_server.add_port(self.public_address)
        add_ProgressServicer_to_server(own, own_server)  # type: ignore[no-untyped-call]
        # As in `master.services.endpoints`.
        for service, server in zip((own, public), servers, strict=True):
            add_MasterServicer_to_server(service, server)  # type: ignore[no-untyped-call]
            await server.start()
        for node in list(master.state.roster.nodes):
            status = {"name": node, "role": node.split("-")[0], "phase": "running", "reason": ""}
            master.do(ObserveNode(status=node_status({**status, "exit_code": None, "message": ""})))
        ready()
        await stopping.wait()
        for server in servers:
            await server.stop(None)
        master._journal.close()
        master._events.close()


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningMaster]:
    """A running master, and the environment of worker 0 of its job."""
    running = RunningMaster(tmp_path)
    running.start()
    monkeypatch.setenv(PodEnv.MASTER_ADDR, running.address)
    monkeypatch.setenv(PodEnv.TOKEN_FILE, str(tmp_path / "token"))
    monkeypatch.setenv(PodEnv.WORKER_ID, "0")
    monkeypatch.setenv(PodEnv.WORKER_TYPE, "worker")
    yield running
    running.close()
