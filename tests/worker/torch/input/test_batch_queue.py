"""Batches made in the background: when they are made, how closing ends that, and that errors arrive whole."""

import gc
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from elasticdl.jobs.mode import Mode
from elasticdl.worker.batching.batch_queue import BatchQueue, Pace, prefetch_batches
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Shard


def one_to_one(dataset: Any, mode: Mode, metadata: Any) -> Iterator[Any]:
    return ((np.float32(record), 0) for record in dataset)


def shards(count: int, size: int) -> list[Shard]:
    return [Shard(lease_id=i, epoch=0, start=i * size, end=(i + 1) * size) for i in range(count)]


@pytest.fixture
def stream(
    memory_reader: Any, make_definition: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., BatchQueue]]:
    opened: list[BatchQueue] = []

    def start(given: Any, feed: Any = one_to_one, threads: int = 1, **options: Any) -> BatchQueue:
        monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
        trainer = TorchTrainer(torch.nn.Linear(1, 1), make_definition(feed=feed))
        settings: dict[str, Any] = {"mode": Mode.TRAINING, "batch_size": 2, "max_bad_records": 0} | options
        opened.append(trainer.batches(memory_reader(list(range(1000))), given, **settings))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_all_batches_of_all_shards_in_order(stream: Any) -> None:
    batches = list(stream(shards(10, 5)))
    assert torch.cat([b.features for b in batches]).tolist() == list(range(50))
    assert [b.shard.lease_id for b in batches if b.last] == list(range(10))


def test_batches_are_made_before_they_are_asked_for(stream: Any) -> None:
    reached = threading.Event()

    def feed(dataset: Any, mode: Mode, metadata: Any) -> Iterator[Any]:
        for record in dataset:
            if record == 6:
                reached.set()
            yield np.float32(record), 0

    stream(shards(10, 10), feed)
    assert reached.wait(30)


def test_nothing_is_made_before_it_is_asked_for_where_computing_takes_every_core(stream: Any) -> None:
    given: list[int] = []

    def feed(dataset: Any, mode: Mode, metadata: Any) -> Iterator[Any]:
        for record in dataset:
            given.append(record)
            yield np.float32(record), 0

    batches = stream(shards(10, 10), feed, threads=2)
    for taken in range(1, 4):
        assert next(batches).size == 2
        # A batch is known not to be the last when one sample more is seen.
        assert len(given) == 2 * taken + 1
    batches.close()
    assert len(given) == 7


def test_consumer_is_notified_when_batch_is_ready(stream: Any) -> None:
    nudged = threading.Event()
    batches = prefetch_batches(stream(shards(2, 2), threads=2), nudged.set)
    seen: list[float] = []
    while True:
        nudged.clear()
        if not batches.ready():
            assert nudged.wait(30)
            continue
        batch = batches.take()
        if batch is None:
            break
        seen += batch.features.tolist()
    assert seen == [0, 1, 2, 3]


def test_plain_iterator_is_prefetched() -> None:
    batches = prefetch_batches(
        iter([Batch(shard=shards(1, 1)[0], position=1, size=1, atomic=False, last=True)]), lambda: None
    )
    assert next(batches).position == 1
    assert list(batches) == []


def pace_after(*parts: float, shares_cores: bool = True) -> Pace:
    pace = Pace(shares_cores=shares_cores)
    for part in parts:
        pace.made(making=part, computing=1.0)
    return pace


def test_batches_are_made_ahead_if_it_costs_much_to_make_them() -> None:
    assert not pace_after(*[0.1] * 100).ahead
    assert pace_after(*[0.5] * Pace.SEEN).ahead
    assert not pace_after(*[0.5] * (Pace.SEEN - 1)).ahead


def test_a_few_batches_that_waited_for_a_shard_do_not_decide() -> None:
    assert not pace_after(*([50.0] * 4 + [0.1] * 5) * 3).ahead


def test_making_ahead_is_tried_without_now_and_then() -> None:
    pace = pace_after(*[0.5] * (Pace.SEEN + Pace.TRY_AGAIN_AFTER - 1))
    tried = [pace.ahead]
    pace.made(making=0.5, computing=0.0)
    tried.append(pace.ahead)
    for _ in range(Pace.SEEN):
        pace.made(making=0.5, computing=1.0)
    tried.append(pace.ahead)
    assert tried == [True, False, True]


def test_batches_are_always_made_ahead_where_there_is_a_core_for_it() -> None:
    assert pace_after(*[0.01] * 100, shares_cores=False).ahead


def test_reading_stops_when_enough_is_ahead(stream: Any) -> None:
    given: list[int] = []

    def feed(dataset: Any, mode: Mode, metadata: Any) -> Iterator[Any]:
        for record in dataset:
            given.append(record)
            yield np.float32(record), 0

    batches = stream(shards(100, 10), feed)
    for _ in range(3):
        next(batches)
    batches.close()
    # Three taken, some ahead, and the one that had no room.
    assert len(given) < 30


def test_closing_while_the_queue_is_full(stream: Any) -> None:
    batches = stream(shards(100, 10))
    next(batches)
    batches.close()
    batches._thread.join(30)
    assert not batches._thread.is_alive()
    assert list(batches) == []


def test_closing_while_waiting_for_a_shard(stream: Any) -> None:
    waiting, gate, touched = threading.Event(), threading.Event(), []

    def given() -> Iterator[Shard]:
        yield shards(1, 4)[0]
        waiting.set()
        gate.wait(30)
        yield Shard(lease_id=9, epoch=0, start=4, end=8)

    def feed(dataset: Any, mode: Mode, metadata: Any) -> Iterator[Any]:
        touched.append(dataset.shard.lease_id)
        yield from one_to_one(dataset, mode, metadata)

    batches = stream(given(), feed)
    assert waiting.wait(30)
    batches.close()
    gate.set()
    batches._thread.join(30)
    assert not batches._thread.is_alive()
    assert touched == [0]


def test_close_closes_the_shard_source(stream: Any) -> None:
    class Leases:
        def __init__(self) -> None:
            self.closed = threading.Event()
            self.waiting = threading.Event()

        def __iter__(self) -> Iterator[Shard]:
            self.waiting.set()
            self.closed.wait(30)
            return iter(())

        def close(self) -> None:
            self.closed.set()

    leases = Leases()
    batches = stream(leases)
    assert leases.waiting.wait(30)
    batches.close()
    batches._thread.join(30)
    assert not batches._thread.is_alive()


def test_closing_ends_a_wait_for_a_batch_in_another_thread(stream: Any) -> None:
    gate = threading.Event()

    def given() -> Iterator[Shard]:
        gate.wait(30)
        yield from ()

    batches = stream(given())
    ended: list[list[Any]] = []
    taker = threading.Thread(target=lambda: ended.append(list(batches)))
    taker.start()
    batches.close()
    taker.join(30)
    gate.set()
    assert ended == [[]]


def test_closing_in_a_feed_that_gives_nothing(stream: Any) -> None:
    begun, go_on = threading.Event(), threading.Event()
    seen: list[int] = []

    def feed(dataset: Any, mode: Mode, metadata: Any) -> Iterator[Any]:
        for record in dataset:
            seen.append(record)
            begun.set()
            go_on.wait(30)
        yield from ()

    batches = stream(shards(1, 1000), feed)
    assert begun.wait(30)
    closer = threading.Thread(target=batches.close)
    closer.start()
    batches._queue.changed.acquire()
    batches._queue.changed.wait_for(lambda: batches._queue.closed, timeout=30)
    batches._queue.changed.release()
    go_on.set()
    closer.join(30)
    assert not batches._source.reading
    assert seen == [0]


def test_a_forgotten_iterator_stops_reading(stream: Any, memory_reader: Any, make_definition: Any) -> None:
    trainer = TorchTrainer(torch.nn.Linear(1, 1), make_definition(feed=one_to_one))
    batches = trainer.batches(
        memory_reader(list(range(1000))), shards(100, 10), mode=Mode.TRAINING, batch_size=2, max_bad_records=0
    )
    thread = batches._thread
    next(batches)
    del batches
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()


def test_an_error_of_the_feed_comes_after_the_batches_before_it_with_its_traceback(stream: Any) -> None:
    def parse(record: int) -> float:
        if record == 13:
            raise ZeroDivisionError("thirteen")
        return record

    def feed(dataset: Any, mode: Mode, metadata: Any) -> Iterator[Any]:
        for record in dataset:
            yield np.float32(parse(record)), 0

    batches = stream(shards(4, 10), feed)
    seen: list[int] = []
    with pytest.raises(ZeroDivisionError, match="thirteen") as caught:
        seen.extend(each for batch in batches for each in batch.features.int().tolist())
    assert seen == list(range(12))
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-2:] == ["feed", "parse"]
    assert batches.failed_shard is not None
    assert batches.failed_shard.lease_id == 1
    assert list(batches) == []


def test_an_error_of_the_shards_arrives_too(stream: Any) -> None:
    def given() -> Iterator[Shard]:
        yield shards(1, 2)[0]
        raise ConnectionError("gone")

    batches = stream(given())
    assert next(batches).size == 2
    with pytest.raises(ConnectionError, match="gone"):
        next(batches)
    assert batches.failed_shard is None


def test_two_streams_of_one_trainer(memory_reader: Any, make_definition: Any) -> None:
    trainer = TorchTrainer(torch.nn.Linear(1, 1), make_definition(feed=one_to_one))
    reader = memory_reader(list(range(100)))
    options: dict[str, Any] = {"batch_size": 3, "max_bad_records": 0}
    training = trainer.batches(reader, shards(3, 10), mode=Mode.TRAINING, **options)
    evaluation = trainer.batches(reader, shards(3, 10), mode=Mode.EVALUATION, **options)
    pairs = list(zip(training, evaluation, strict=True))
    assert all(a.features.tolist() == b.features.tolist() for a, b in pairs)
    assert sum(a.size for a, _ in pairs) == 30
