"""Single records instead of shards: for programs whose loaders ask for one index after the other.

Shards are fetched by a thread of the process that made the service and go into a queue, record by record. Loader
processes take from that queue: they need no connection to the master, and none of them has to know of the others.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from elasticai_api.common.master import Master, ShardProgress
from elasticai_api.common.shards import TRAINING, DataShardService
from elasticai_api.errors import ElasticError, ShardError
from elasticai_api.proto import elasticai_api_pb2 as pb

# Records that lie ready: enough for a batch, few enough for the buffer of a pipe.
_LEAST_READY = 16
_MOST_READY = 1024
# Default number of batches that a loader process of PyTorch's DataLoader prefetches.
_BATCHES_AHEAD = 2


class RecordIndices:
    """The queue of records, as every process may use it."""

    def __init__(self, ready: int) -> None:
        # A context made for spawned processes serves forked ones too; the reverse is refused.
        context = multiprocessing.get_context("spawn")
        self._queue: Any = context.SimpleQueue()
        self._room = context.Semaphore(ready)

    def fetch_record_index(self) -> int:
        """The next record. Raises `StopIteration` at the end of the data."""
        item = self._queue.get()
        if isinstance(item, int):
            self._room.release()
            return item
        # Wakes the other readers of this queue.
        self._queue.put(item)
        if item is None:
            raise StopIteration
        raise ShardError(item)

    def record_index_gen(self) -> Iterator[int]:
        """All records that this process gets."""
        while True:
            try:
                index = self.fetch_record_index()
            except StopIteration:
                return
            yield index

    def wait_for_room(self) -> None:
        """Blocks until a record is taken."""
        self._room.acquire()

    def give_room(self) -> None:
        """The room that was waited for is not used."""
        self._room.release()

    def put(self, index: int) -> None:
        """There must be room for it."""
        self._queue.put(index)

    def end(self, reason: str | None = None) -> None:
        """There are no more records; because of an error, if there is a reason."""
        self._queue.put(reason)

    def clear(self) -> None:
        """Discards what has not been taken yet."""
        while not self._queue.empty():
            if isinstance(self._queue.get(), int):
                self._room.release()


class RecordIndexService(DataShardService):
    """The records of a data set one by one, for any number of loader processes.

    Arguments as for `DataShardService`, and
        shuffle: the records come in another order in every epoch: that of shards, and inside each shard.
        num_workers: loader processes that fetch records. Each of them makes batches of its own; so a record counts
            as done only when it surely is, whichever batch it went into.
        out_of_order: by how many samples batches may be out of order. Not given, what PyTorch's DataLoader does with
            so many loader processes and its usual `prefetch_factor` of 2.

    In another process than the one that made it, where it comes by inheritance or as an argument, there are
    `fetch_record_index` and `record_index_gen`; fetching and reporting shards stays with the first.
    """

    def __init__(
        self,
        batch_size: int,
        num_epochs: int | None = None,
        dataset_size: int | None = None,
        task_type: int = TRAINING,
        shuffle: bool = False,
        num_minibatches_per_shard: int = 0,
        dataset_name: str | None = None,
        master_client: Master | None = None,
        num_workers: int = 1,
        *,
        remainder: str | None = None,
        out_of_order: int | None = None,
    ) -> None:
        if out_of_order is None:
            out_of_order = num_workers * _BATCHES_AHEAD * batch_size if num_workers > 1 else 0
        super().__init__(
            batch_size=batch_size,
            num_epochs=num_epochs,
            dataset_size=dataset_size,
            shuffle_shards=shuffle,
            shuffle_records=shuffle,
            task_type=task_type,
            num_minibatches_per_shard=num_minibatches_per_shard,
            dataset_name=dataset_name,
            master_client=master_client,
            remainder=remainder,
            out_of_order=out_of_order,
        )
        self._indices = RecordIndices(min(max(batch_size, _LEAST_READY), _MOST_READY))
        # Held while a record goes into the queue, so that none does after the queue was cleared.
        self._feeding = threading.Condition()
        self._paused = False
        # Grows whenever the data set is set back.
        self._round = 0
        self._feed()

    def __reduce__(self) -> tuple[type[_OfAnotherProcess], tuple[RecordIndices]]:
        return _OfAnotherProcess, (self._indices,)

    # -- records ---------------------------------------------------------------------------------------------

    def fetch_record_index(self) -> int:
        """The next record. Raises `StopIteration` at the end of the data."""
        return self._indices.fetch_record_index()

    def record_index_gen(self) -> Iterator[int]:
        """All records that this process gets."""
        return self._indices.record_index_gen()

    def get_tf_dataset(self, record_files: Sequence[str] | None = None) -> Any:
        """The records as a `tf.data.Dataset`: their indices, or the paths at these indices of `record_files`."""
        from elasticai_api.tensorflow.dataset import record_dataset

        return record_dataset(self, record_files)

    def restore_shard_from_checkpoint(self, shard_checkpoint: str) -> bool:
        """Goes on from a checkpoint, without the records that lie ready."""
        with self._set_back():
            return super().restore_shard_from_checkpoint(shard_checkpoint)

    def reset_dataset(self) -> None:
        """Begins again with the first epoch."""
        with self._set_back():
            super().reset_dataset()

    # -- the thread that fetches shards ----------------------------------------------------------------------

    @contextmanager
    def _set_back(self) -> Iterator[None]:
        """The records that lie ready are forgotten, and no shard is asked for before the master knows of it."""
        with self._feeding:
            self._round += 1
            self._paused = True
            self._indices.clear()
        try:
            yield
        finally:
            with self._feeding:
                self._paused = False
                self._feeding.notify_all()
                if not self._feeds:
                    self._feed()

    def _feed(self) -> None:
        self._feeds = True
        threading.Thread(target=self._put_records, name="elasticai records", daemon=True).start()

    def _put_records(self) -> None:
        ends = False
        while not ends:
            number = self._current_round()
            try:
                task = self.get_task()
                if task.type != self._task_type:
                    ends = self._put_end(number, None)
                    continue
                current = self._current_round()
                if current == number or self._still_ours(task):
                    self._put_shard(current, task.shard)
            except ElasticError as error:
                ends = self._put_end(number, str(error))

    def _current_round(self) -> int:
        with self._feeding:
            self._feeding.wait_for(lambda: not self._paused)
            return self._round

    def _put_shard(self, number: int, shard: pb.Shard) -> None:
        for index in shard.indices or range(shard.start, shard.end):
            self._indices.wait_for_room()
            with self._feeding:
                if self._round == number:
                    self._indices.put(index)
                    continue
            self._indices.give_room()
            return

    def _put_end(self, number: int, reason: str | None) -> bool:
        with self._feeding:
            if self._round != number:
                return False
            self._indices.end(reason)
            self._feeds = False
            return True

    def _still_ours(self, task: pb.Task) -> bool:
        """The data set was set back while this shard was asked for: was it given before that, or after?"""
        nothing = ShardProgress(task_id=task.task_id, position=task.shard.start, batches=0, ended=False)
        lost = self._master.progress(self._dataset_name, [nothing])
        with self._lock:
            self._held.drop(task.task_id)
            if not lost:
                self._held.add(task)
        return not lost


class _OfAnotherProcess:
    """Replaces a service that was sent to another process, where it cannot be used."""

    def __init__(self, indices: RecordIndices) -> None:
        self.fetch_record_index = indices.fetch_record_index
        self.record_index_gen = indices.record_index_gen
