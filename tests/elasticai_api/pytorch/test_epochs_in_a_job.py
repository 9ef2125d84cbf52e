"""Epochs of a worker that has a master: it reports its places, is drained, and must not stop by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
import torch
from torch.utils.data import DataLoader

from elasticai_api.errors import Drained, ElasticError
from elasticai_api.proto import allreduce_pb2 as pb
from elasticai_api.proto.allreduce_pb2_grpc import AllReduceServicer, add_AllReduceServicer_to_server
from elasticai_api.pytorch.controller import ElasticController, create_elastic_controller
from tests.elasticai_api.pytorch.test_solo import _data, _model

SIZE, BATCH, EPOCHS = 50, 10, 2


class Master(AllReduceServicer):
    """Of a job with one worker, which it may drain."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_draining = False
        self.has_left = False
        # Epoch and place in it, as reported last.
        self.reported = (0, 0)

    def drain(self) -> None:
        with self._changed:
            self._is_draining = True
            self._changed.notify_all()

    def Open(self, request: pb.OpenRequest, context: Any) -> pb.OpenReply:
        return pb.OpenReply(generation=1)

    def Gather(self, request: pb.GatherRequest, context: Any) -> Iterator[pb.Standing]:
        sent = None
        while context.is_active():
            with self._changed:
                if sent == self._is_draining and not self._changed.wait(0.05):
                    continue
                sent = self._is_draining
            yield pb.Standing(
                round=1,
                members=[pb.Member(worker=request.worker, address=request.address)],
                generation=1,
                size=SIZE,
                batch_size=BATCH,
                epochs=EPOCHS,
                open_epochs=EPOCHS,
                per_step=1,
                fresh=True,
                leaving=sent,
            )

    def Order(self, request: pb.OrderRequest, context: Any) -> pb.OrderReply:
        ends = min(SIZE // BATCH, request.first + request.count)
        return pb.OrderReply(starts=[BATCH * place for place in range(request.first, ends)])

    def Advance(self, request: pb.AdvanceRequest, context: Any) -> pb.AdvanceReply:
        self.reported = max(self.reported, (request.epoch, request.at))
        return pb.AdvanceReply()

    def Synced(self, request: pb.SyncedRequest, context: Any) -> pb.SyncedReply:
        return pb.SyncedReply()

    def Leave(self, request: pb.LeaveRequest, context: Any) -> pb.LeaveReply:
        self.has_left = True
        return pb.LeaveReply()


@pytest.fixture
def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Master]:
    master = Master()
    server = grpc.server(ThreadPoolExecutor(4))
    add_AllReduceServicer_to_server(master, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    (tmp_path / "token").write_text("token")
    monkeypatch.setenv("MASTER_ADDR", f"127.0.0.1:{port}")
    monkeypatch.setenv("ELASTICDL_TOKEN_FILE", str(tmp_path / "token"))
    yield master
    server.stop(None).wait()


def _controller() -> tuple[ElasticController, Any, Any]:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = DataLoader(_data(), batch_size=BATCH)
    controller = create_elastic_controller(model=model, optimizer=optimizer, loader=loader, num_epochs=EPOCHS)
    return controller, model, optimizer


def _train(model: Any, optimizer: Any, batch: Any) -> None:
    features, targets = batch
    torch.nn.functional.mse_loss(model(features), targets).backward()
    optimizer.step()


def test_end_of_the_last_epoch_is_reported_before_worker_leaves(master: Master) -> None:
    controller, model, optimizer = _controller()
    ends = []
    for epoch in controller.epochs():
        for batch in epoch:
            _train(model, optimizer, batch)
        ends.append((epoch.number, controller.step))
        assert controller.first
    assert ends == [(0, 5), (1, 10)]
    assert master.reported == (1, 5)
    assert master.has_left


def test_drained_worker_leaves_without_what_follows_the_epoch(master: Master) -> None:
    controller, model, optimizer = _controller()
    epoch = next(controller.epochs())
    batches = iter(epoch)
    for _ in range(2):
        _train(model, optimizer, next(batches))
    team: Any = controller._team
    master.drain()
    assert team._standings.wait(lambda standing: standing.leaving)
    with pytest.raises(Drained) as raised:
        next(batches)
    assert raised.value.code == 0
    assert controller.is_drained
    # What it has trained is not trained again.
    assert master.reported == (0, 2)
    assert master.has_left


def test_loop_of_a_library_that_stops_early_is_an_error_in_a_job(master: Master) -> None:
    controller, model, optimizer = _controller()
    epoch = controller.next_epoch()
    assert epoch is not None
    _train(model, optimizer, next(iter(epoch)))
    with pytest.raises(ElasticError, match="stopped before its last epoch"):
        controller.finish()
    assert master.has_left
