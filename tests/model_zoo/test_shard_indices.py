"""Indices for an Estimator's input: in the order of the shards, and again from the first that is not trained."""

from __future__ import annotations

import threading
from itertools import islice

import pytest

from elasticai_api.common.data_shard_service import DataShardService, build_data_shard_service
from model_zoo.elastic_estimator import ShardIndices

BATCH = 4


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> DataShardService:
    """Alone, without a master: ten samples in shards of one batch, the last of them smaller."""
    for name in ("MASTER_ADDR", "DLROVER_MASTER_ADDR", "ELASTICDL_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return build_data_shard_service(
        batch_size=BATCH, num_epochs=1, dataset_size=10, num_minibatches_per_shard=1, dataset_name="ten"
    )


def test_shard_indices_yield_all_samples_in_order(service: DataShardService) -> None:
    assert list(ShardIndices(service, BATCH)) == list(range(10))


def test_a_new_reader_begins_with_what_is_not_trained(service: DataShardService) -> None:
    indices = ShardIndices(service, BATCH)
    assert list(islice(indices, 10)) == list(range(10))
    indices.batch_done()
    assert list(indices) == [4, 5, 6, 7, 8, 9]


def test_the_reader_before_ends(service: DataShardService) -> None:
    indices = ShardIndices(service, BATCH)
    old = iter(indices)
    assert next(old) == 0
    new = iter(indices)
    assert next(new) == 0
    assert list(old) == []
    assert list(new) == list(range(1, 10))


def test_the_last_batch_is_smaller(service: DataShardService) -> None:
    indices = ShardIndices(service, BATCH)
    assert len(list(indices)) == 10
    for _ in range(3):
        indices.batch_done()
    assert list(indices) == []
    assert service.get_current_task() is not None
    assert '"doing": []' in service.get_shard_checkpoint()


def test_a_batch_is_reported_while_a_shard_is_waited_for() -> None:
    """The master may wait for just this report before it gives out a shard."""
    reported = threading.Event()

    class Waiting:
        def fetch_shard(self) -> None:
            assert reported.wait(60)

        def report_batch_done(self) -> None:
            reported.set()

    indices = ShardIndices(Waiting(), BATCH)
    reader = threading.Thread(target=list, args=(indices,))
    reader.start()
    indices.batch_done()
    reader.join(60)
    assert not reader.is_alive()
