"""With the master of a job: every sample in every epoch once, counted batch by batch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from elasticai_api.common.data_shard_service import DataShardService, build_data_shard_service
from elasticai_api.errors import ShardError
from elasticdl.platforms.platform import NodePhase

Train = Callable[..., list[int]]


def _service(**more: Any) -> DataShardService:
    said = {"batch_size": 4, "num_epochs": 2, "dataset_size": 50, "num_minibatches_per_shard": 3}
    return build_data_shard_service(**{**said, "dataset_name": "d", **more})


@pytest.mark.parametrize("shuffle", [False, True])
def test_every_sample_of_every_epoch(job: Any, train: Train, shuffle: bool) -> None:
    service = _service(shuffle=shuffle)
    samples = train(service)
    service.flush()
    assert Counter(samples) == Counter(list(range(50)) * 2)
    assert job.done("d") == 100
    assert job.do(lambda master: master.state.ledger.finished("d"))


def test_shuffled_records(job: Any, train: Train) -> None:
    service = DataShardService(batch_size=4, dataset_size=50, dataset_name="d", shuffle_records=True)
    samples = train(service)
    service.flush()
    assert samples != sorted(samples)
    assert sorted(samples) == list(range(50))
    assert job.done("d") == 50


def test_progress_inside_a_shard(job: Any) -> None:
    service = _service()
    service.fetch_shard()
    service.report_batch_done()
    service.flush()
    assert job.done("d") == 4
    service.report_batch_done(2)
    service.flush()
    assert job.done("d") == 6


def test_a_killed_workers_batches_are_not_trained_again(
    job: Any, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _service(num_epochs=1)
    first.fetch_shard()
    first.report_batch_done()
    first.flush()
    job.observe("worker-0", NodePhase.FAILED, "killed")
    monkeypatch.setenv("WORKER_ID", "1")
    second = _service(num_epochs=1)
    assert sorted(train(second)) == list(range(4, 50))


def test_lost_shard_is_not_reported_any_more(job: Any, train: Train, monkeypatch: pytest.MonkeyPatch) -> None:
    first = _service(num_epochs=1)
    first.fetch_shard()
    job.observe("worker-0", NodePhase.FAILED, "killed")
    monkeypatch.setenv("WORKER_ID", "1")
    second = _service(num_epochs=1)
    shard = second.fetch_shard()
    assert shard is not None
    assert (shard.start, shard.end) == (0, 12)
    for _ in range(3):
        first.report_batch_done()
    first.flush()
    assert job.done("d") == 0
    second.report_batch_done(12)
    assert sorted(train(second)) == list(range(12, 50))
    second.flush()
    assert job.done("d") == 50


def test_end_of_a_shard_is_reported_at_once(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker that is held for it goes on."""
    mine = _service(num_epochs=1, dataset_size=12)
    mine.fetch_shard()
    monkeypatch.setenv("WORKER_ID", "1")
    theirs = _service(num_epochs=1, dataset_size=12)
    mine.report_batch_done(12)
    assert theirs.fetch_shard() is None


def test_an_error_gives_back_the_rest(job: Any) -> None:
    service = _service(num_epochs=1)
    service.fetch_shard()
    service.report_batch_done()
    service.report_batch_done(err_msg="no such file")
    again = service.fetch_shard()
    assert again is not None
    assert (again.start, again.end) == (4, 12)
    service.report_all_task_error("no such file")
    again = service.fetch_shard()
    assert again is not None
    assert (again.start, again.end) == (4, 12)


def test_different_sizes_of_one_data_set_are_refused(job: Any) -> None:
    _service()
    with pytest.raises(ShardError, match="51 samples for one worker and 50 for another"):
        _service(dataset_size=51)


def test_unannounced_data_set_raises(job: Any) -> None:
    service = build_data_shard_service(batch_size=4, dataset_name="mine")
    with pytest.raises(ShardError, match="The data set mine is not announced"):
        service.fetch_shard()


def test_a_data_set_that_another_announced(job: Any, train: Train) -> None:
    _service(num_epochs=1)
    assert train(build_data_shard_service(batch_size=4, dataset_name="d")) == list(range(50))


def test_checkpoint_and_restore(job: Any, train: Train) -> None:
    service = _service()
    train(service, shards=2)
    service.fetch_shard()
    service.report_batch_done()
    content = service.get_shard_checkpoint()
    document = json.loads(content)
    assert document["doing"] == [[28, 36]]
    assert document["current_epoch"] == service.get_current_epoch() == 1
    train(service, shards=3)
    assert service.get_current_epoch() == 2
    assert service.restore_shard_from_checkpoint(content)
    assert Counter(train(service)) == Counter([*range(28, 50), *range(50)])
    assert not service.restore_shard_from_checkpoint("nonsense")


def test_reset_data_set_starts_from_the_beginning(job: Any, train: Train) -> None:
    service = _service()
    train(service, shards=6)
    service.reset_dataset()
    assert Counter(train(service)) == Counter(list(range(50)) * 2)


def test_alone_and_with_a_master_shards_are_the_same(job: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def shards(service: DataShardService) -> list[tuple[int, int]]:
        found = []
        while (shard := service.fetch_shard()) is not None:
            found.append((shard.start, shard.end))
            service.report_batch_done(shard.end - shard.start)
        return found

    with_master = shards(_service(remainder="drop"))
    monkeypatch.delenv("MASTER_ADDR")
    monkeypatch.delenv("ELASTICDL_TOKEN_FILE")
    assert shards(_service(remainder="drop")) == with_master
