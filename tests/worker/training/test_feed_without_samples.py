"""A feed may leave records out; one that leaves out all of them is an error, and no epoch that counts as trained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from elasticdl.data.reader import BadRange
from elasticdl.errors import UserError
from elasticdl.worker.trainer import Batch, Shard
from tests.worker.small_loop import batch, close, make_loop, train

RECORDS = range(5000)
LAST = batch(130, size=0, atomic=True)


@pytest.fixture
def loop(table_servers: tuple[list[Any], list[str]]) -> Iterator[Any]:
    made = make_loop(table_servers[1])
    train(made)
    made._training = RECORDS
    yield made
    close(made)


def test_shard_without_samples_of_data_without_samples_fails(loop: Any) -> None:
    with pytest.raises(UserError, match="no sample for any of the 5,000 records of data"):
        train(loop, LAST)
    loop._reporter.flush()
    assert loop._link.reported == {}


def test_model_without_samples_is_not_waited_for(loop: Any) -> None:
    """An evaluation or an export would wait for a sample for ever."""
    with pytest.raises(UserError, match="no sample for any"):
        loop._make_ready()


def test_shard_without_samples_counts_where_others_have_some(loop: Any) -> None:
    asked: list[tuple[int, int]] = []

    def batches(reader: Any, shards: Sequence[Shard], **_: Any) -> Iterator[Batch]:
        asked.append((shards[0].start, shards[0].end))
        if shards[0].end > 4000:
            yield batch(110)

    loop._trainer.batches = batches
    train(loop, LAST)
    loop._reporter.flush()
    assert loop._link.reported == {7: 130}
    assert [start for start, _ in asked] == [0, *(end for _, end in asked[:-1])]
    assert len(asked) < 20


def test_records_that_cannot_be_read_are_no_fault_of_the_feed(loop: Any) -> None:
    bad = BadRange(start=0, end=5000, where="data", reason="checksum")
    loop._trainer.given = (batch(130, size=0, bad=(bad,)),)
    assert not loop._make_ready()
