"""A master comes back without its journal, over real connections: what its workers remember completes its snapshot."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.audit import Audit
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import ScaleRole
from elasticdl.master.commands.recovery import FinishReclaim
from elasticdl.master.commands.shards import AnnounceDataset
from elasticdl.master.ledger.audit import audit_ledger
from elasticdl.master.master import Master
from elasticdl.master.recovery.journal_recovery import JournalRecovery
from elasticdl.master.services.master_service import MasterService
from elasticdl.platforms.platform import NodePhase, NodeStatus
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire.channel import add_port, new_aio_server
from elasticdl.wire.master_pb2_grpc import add_MasterServicer_to_server
from elasticdl.wire.reserved_ports import KeptPort
from elasticdl.worker.master_link import MasterLink
from elasticdl.worker.reporter import Reporter
from elasticdl.worker.shard_source import LeasedShards
from tests.serving_thread import ServingThread

SIZE = 400
SPEC = JobSpec.build(
    kind="predict",
    model_zoo="zoo",
    model_def="m.m.custom_model",
    prediction_data="data",
    job_name="forgetful",
    num_workers=3,
    minibatch_size=4,
    num_minibatches_per_task=5,
    checkpoint_dir_for_init="checkpoint",
)


class RunningMaster:
    """A master in a thread of its own, which can be stopped like a machine that is lost, and started elsewhere."""

    def __init__(self, folder: Path, platform: Any, token: str = "secret") -> None:
        self.folder = folder
        self.token = token
        self._platform = platform
        self._kept = KeptPort()
        self.port = self._kept.number

    def start(self, *, kept: str | None = None, patience: float = 60.0) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self._thread = ServingThread(partial(self._serve, kept, patience))

    async def _serve(
        self, kept: str | None, patience: float, ready: Callable[[], None], stopping: asyncio.Event
    ) -> None:
        self.master = master = Master(
            spec=SPEC, folder=self.folder, platform=self._platform, token=self.token, environment={}
        )
        master._recovery = JournalRecovery(
            master,
            platform=self._platform,
            servers=master._servers,
            checkpoint_folder=master.checkpointer.folder,
            clock=master.clock,
            patience_seconds=patience,
        )
        master.checkpointer.begin = lambda: None  # type: ignore[method-assign]
        master.recover(kept)
        server = new_aio_server(self.token)
        add_MasterServicer_to_server(MasterService(master), server)  # type: ignore[no-untyped-call]
        add_port(server, f"127.0.0.1:{self.port}")
        await server.start()
        running = asyncio.create_task(master.run())
        stopped = asyncio.create_task(stopping.wait())
        ready()
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        stopped.cancel()
        await asyncio.gather(running, stopped, return_exceptions=True)
        await server.stop(None)

    def ask(self, what: Callable[[Master], Any]) -> Any:
        return self._thread.do(lambda: what(self.master))

    def lose(self) -> None:
        self._thread.stop()

    def close(self) -> None:
        self.lose()
        self._kept.close()


class Worker:
    """The real link, leases and reports of a worker; a step of its training is a permission to go on."""

    def __init__(self, name: str, running: RunningMaster, done: Counter[int]) -> None:
        self.name = name
        self._done = done
        self._steps = threading.Semaphore(0)
        self._moved = threading.Condition()
        self.reached = 0
        self.link = MasterLink(address=f"127.0.0.1:{running.port}", token=running.token, node=name)
        self.link.join()
        self.link.memory.announce("prediction", SIZE)
        request = pb.AnnounceRequest(node=name, dataset="prediction", size=SIZE)
        self.link.call(self.link.stub.Announce, request)
        self.reporter = Reporter(self.link)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        generation = self.link.directive().generation
        self.reporter.start_generation(generation)
        for shard in LeasedShards(self.link, "prediction", generation=generation):
            for batches, position in enumerate(range(shard.start, shard.end, 4), start=1):
                self._steps.acquire()
                if shard.lease_id in self.reporter.lost:
                    break
                end = min(position + 4, shard.end)
                self._done.update(range(position, end))
                self.reporter.note(
                    lease_id=shard.lease_id,
                    position=end,
                    batches=batches,
                    atomic=False,
                    last=end == shard.end,
                )
                with self._moved:
                    self.reached += 1
                    self._moved.notify_all()
        self.reporter.flush()
        self.link.close()

    def step(self, batches: int) -> None:
        """So many batches are done and reported."""
        goal = self.reached + batches
        self._steps.release(batches)
        with self._moved:
            self._moved.wait_for(lambda: self.reached >= goal)
        self.reporter.flush()

    def go(self) -> None:
        self._steps.release(10 * SIZE)

    def join(self) -> None:
        self._thread.join(120)
        assert not self._thread.is_alive()


@pytest.fixture
def listed(nowhere: Any) -> Any:
    """A platform that knows the workers that a test says are there."""
    names: set[str] = set()

    async def nodes() -> list[NodeStatus]:
        return [NodeStatus(name=name, role="worker", phase=NodePhase.RUNNING) for name in names]

    nowhere.nodes = nodes
    nowhere.names = names
    return nowhere


@pytest.fixture
def running(tmp_path: Path, listed: Any) -> Iterator[RunningMaster]:
    made = RunningMaster(tmp_path / "job", listed)
    made.start()
    yield made
    made.close()


def come_back(running: RunningMaster, kept: str, workers: list[Worker]) -> None:
    """The master is lost and another one begins with the snapshot: nothing has to be done again."""
    running.lose()
    running.start(kept=kept)
    for worker in workers:
        worker.go()
    audit = finish(running)
    for worker in workers:
        worker.join()
    assert audit.exact, audit.reason
    assert [row.again for row in audit.rows] == [0]


def finish(running: RunningMaster) -> Audit:
    def ended(master: Master) -> bool:
        ledger = master.state.ledger
        return "prediction" in ledger.datasets() and ledger.finished("prediction")

    pause = threading.Event()
    while not running.ask(ended):
        pause.wait(0.05)
    audit: Audit = running.ask(lambda master: audit_ledger(master.state.ledger))
    return audit


def test_reported_progress_of_workers_is_not_repeated(running: RunningMaster, listed: Any) -> None:
    done: Counter[int] = Counter()
    workers = [Worker(f"worker-{i}", running, done) for i in range(3)]
    listed.names.update(worker.name for worker in workers)
    workers[0].step(3)
    kept = running.ask(lambda master: master.record())
    # All that is forgotten: shards finished, begun, and a first report.
    workers[0].step(9)
    workers[1].step(7)
    workers[2].step(1)
    come_back(running, kept, workers)
    assert done == Counter(range(SIZE))


def test_progress_of_lost_worker_is_repeated_and_audited(running: RunningMaster, listed: Any) -> None:
    done: Counter[int] = Counter()
    workers = [Worker(f"worker-{i}", running, done) for i in range(3)]
    listed.names.update(worker.name for worker in workers)
    # Shards of 20 samples in order: worker-1 has got its first before the snapshot, in any order of joining.
    for worker in workers:
        worker.step(1)
    kept = running.ask(lambda master: master.record())
    workers[1].step(2)
    workers[0].step(1)
    running.lose()
    listed.names.remove("worker-1")
    workers[1].link.close()
    running.start(kept=kept)
    for worker in (workers[0], workers[2]):
        worker.go()
    audit = finish(running)
    assert audit.exact, audit.reason
    assert set(done) == set(range(SIZE))
    assert sum(done.values()) == SIZE + 8
    # The sixteen samples that it held according to the snapshot: who could know that eight of them were done?
    assert [row.again for row in audit.rows] == [16]


def test_a_worker_that_the_snapshot_does_not_know_stays(running: RunningMaster, listed: Any) -> None:
    done: Counter[int] = Counter()
    kept = running.ask(lambda master: master.record())
    running.ask(lambda master: master.do(ScaleRole(role="worker", target=4)))
    workers = [Worker(f"worker-{i}", running, done) for i in range(4)]
    listed.names.update(worker.name for worker in workers)
    for worker in workers:
        worker.step(2)
    come_back(running, kept, workers)
    assert done == Counter(range(SIZE))


def test_recovery_goes_on_without_worker_after_timeout(running: RunningMaster, listed: Any) -> None:
    done: Counter[int] = Counter()
    listed.names.update(("worker-0", "worker-1"))
    workers = [Worker("worker-0", running, done)]
    silent = MasterLink(address=f"127.0.0.1:{running.port}", token=running.token, node="worker-1")
    silent.stub.Join(pb.JoinRequest(node="worker-1", role="worker", incarnation="one"))
    kept = running.ask(lambda master: master.record())
    running.lose()
    running.start(kept=kept, patience=0.5)
    workers[0].go()
    assert finish(running).exact
    silent.close()


def test_the_journal_counts_more_than_the_record(running: RunningMaster) -> None:
    kept = running.ask(lambda master: master.record())
    running.ask(lambda master: master.do(AnnounceDataset(dataset="prediction", size=SIZE)))
    running.ask(lambda master: master.recover(kept))
    assert running.ask(lambda master: master.state.sizes) == {"prediction": SIZE}
    assert not running.ask(lambda master: master.state.reclaim.is_collecting)


def test_the_record_of_another_job_is_refused(running: RunningMaster, tmp_path: Path, listed: Any) -> None:
    kept = running.ask(lambda master: master.record())

    async def come_back(token: str, text: str) -> None:
        folder = tmp_path / token
        folder.mkdir()
        master = Master(spec=SPEC, folder=folder, platform=listed, token=token, environment={})
        try:
            master.recover(text)
        finally:
            master._journal.close()
            master._events.close()

    with pytest.raises(UserError, match="not of this job forgetful, but of another one"):
        asyncio.run(come_back("other", kept))
    with pytest.raises(UserError, match="cannot be read"):
        asyncio.run(come_back("secret", kept[:-5]))


def test_a_journal_of_a_lost_machine_may_lack_its_end(running: RunningMaster) -> None:
    running.ask(lambda master: master.do(AnnounceDataset(dataset="prediction", size=SIZE)))
    (running.folder / "machine").write_text("another")
    running.ask(lambda master: master.recover())
    assert running.ask(lambda master: master.state.sizes) == {"prediction": SIZE}
    assert running.ask(lambda master: master.state.reclaim.is_collecting)
    # From now on the journal is this machine's.
    running.ask(lambda master: master.do(FinishReclaim()))
    lineage = running.ask(lambda master: master.state.reclaim.lineage)
    running.ask(lambda master: master.recover())
    assert lineage
    assert running.ask(lambda master: master.state.reclaim.lineage) == lineage
