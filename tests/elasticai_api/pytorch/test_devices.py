"""By what gradients travel: a decision that all members of a round take alike. There is no GPU here; what is decided is
plain numbers, and a second backend beside the first is tried with what there is.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from elasticai_api.errors import ElasticError
from elasticai_api.pytorch.controller import create_elastic_controller
from elasticai_api.pytorch.devices import (
    AUTO,
    GLOO,
    NCCL,
    all_by_nccl,
    device_number,
    gpu_identity,
    local_device,
    wanted_backend,
)
from elasticai_api.pytorch.group import Group, GroupBroken, MeetingPoint, _connect, form


@pytest.mark.parametrize(
    ("argument", "environment", "expected"),
    [
        (None, {}, AUTO),
        ("gloo", {}, GLOO),
        (None, {"ELASTICAI_BACKEND": "nccl"}, NCCL),
        ("gloo", {"ELASTICAI_BACKEND": "nccl"}, GLOO),
    ],
)
def test_backend_follows_argument_then_environment(
    argument: str | None, environment: dict[str, str], expected: str
) -> None:
    assert wanted_backend(argument, environment) == expected


def test_unknown_backend_is_rejected() -> None:
    with pytest.raises(ElasticError, match="The backend can be auto, gloo or nccl, not 'mpi'"):
        create_elastic_controller(batch_size=1, backend="mpi")


@pytest.mark.parametrize(
    ("identities", "expected"), [([7, 8], True), ([7, 0], False), ([7, 7], False), ([0, 0], False)]
)
def test_nccl_only_where_each_has_a_gpu_of_its_own(identities: list[int], expected: bool) -> None:
    assert all_by_nccl(identities, AUTO) is expected


@pytest.mark.parametrize(
    ("identities", "reason"),
    [([7, 0], "a worker has its model on no GPU"), ([7, 7], "two workers share a GPU")],
)
def test_nccl_that_was_asked_for_and_cannot_be(identities: list[int], reason: str) -> None:
    with pytest.raises(ElasticError, match=reason):
        all_by_nccl(identities, NCCL)


def test_model_on_cpu_needs_no_gpu_identity() -> None:
    parameters = list(torch.nn.Linear(2, 2).parameters())
    assert gpu_identity(parameters, AUTO) == 0
    assert gpu_identity(parameters, GLOO) == 0
    with pytest.raises(ElasticError, match="the model is not on a GPU"):
        gpu_identity(parameters, NCCL)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"LOCAL_RANK": "1", "WORKER_ID": "6"}, 1),
        ({"WORKER_ID": "6"}, 2),
        ({"LOCAL_RANK": "", "WORKER_ID": "3"}, 3),
        ({}, 0),
    ],
)
def test_the_gpu_of_a_process(environment: dict[str, str], expected: int) -> None:
    assert device_number(environment, 4) == expected


def test_without_gpus_it_is_the_cpu() -> None:
    if not torch.cuda.is_available():
        assert local_device({"LOCAL_RANK": "1"}) == torch.device("cpu")


def _pair(second: Any) -> list[Any]:
    """Two members, each in a thread: what `second(group)` returns, or raises, in both."""
    meeting = MeetingPoint("127.0.0.1")
    results: list[Any] = [None, None]

    def run(rank: int) -> None:
        group = form(
            number=1,
            rank=rank,
            workers=("a", "b"),
            address=meeting.address,
            meeting=meeting,
            stale=lambda: False,
        )
        try:
            results[rank] = second(group, meeting)
        except GroupBroken as broken:
            results[rank] = broken
        finally:
            group.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_tensors_of_a_kind_go_by_the_backend_for_them() -> None:
    def work(group: Group, meeting: MeetingPoint) -> tuple[list[float], bool]:
        # In place of NCCL: another of the kind there is, for what is on the CPU.
        group.carry(
            "cpu", lambda: _connect(2, group.rank, group.size, meeting.address, meeting, threading.Event())
        )
        tensors = [torch.full((3,), float(group.rank + 1)), torch.ones(1)]
        reduction = group.start_sum(tensors)
        group.wait(reduction)
        return tensors[0].tolist(), all(work.on_gpu for work in reduction.works)

    assert _pair(work) == [([3.0, 3.0, 3.0], True)] * 2


def test_watched_group_breaks_when_a_new_round_begins() -> None:
    def work(group: Group, meeting: MeetingPoint) -> None:
        group.carry(
            "cpu", lambda: _connect(2, group.rank, group.size, meeting.address, meeting, threading.Event())
        )
        if group.rank == 0:
            group.watch(lambda: True)
            group.sum([torch.ones(1)])

    first, second = _pair(work)
    assert isinstance(first, GroupBroken)
    assert second is None


def test_a_backend_that_cannot_connect_breaks_the_round() -> None:
    def work(group: Group, meeting: MeetingPoint) -> None:
        def fail() -> Any:
            raise RuntimeError("no such device\nand a long story")

        group.carry("cpu", fail)

    assert [str(broken) for broken in _pair(work)] == ["no such device"] * 2
