"""Shards of a data set for a training program: fetch one, train on its samples, report the batches.

    service = DataShardService(batch_size=32, num_epochs=3, dataset_size=len(samples))
    while (shard := service.fetch_shard()) is not None:
        for batch in batches(samples[shard.start : shard.end]):
            train(batch)
            service.report_batch_done(len(batch))

Failure modes
    A worker that dies loses what it has not reported; the rest of its shards goes to others. A worker that was taken
    for dead finds its shards lost: it may train on, they only do not count for it any more. A master that dies makes
    calls wait until it is back. An error that the program reports for a batch gives back what is not done of the
    shard; a shard that fails again and again ends the job with that error. Prefetched shards (supply.py)
    are given back when the program does not use them.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Iterator, Sequence

from elasticai_api.common.account import HeldShards
from elasticai_api.common.constants import DefaultDatasetName
from elasticai_api.common.epochs import ShardEpoch, ShardEpochs
from elasticai_api.common.master import DatasetParams, FetchedShard, Master, check_batch_size
from elasticai_api.common.master_client import build_master_client
from elasticai_api.common.reports import Reports
from elasticai_api.common.supply import Supply
from elasticai_api.errors import ElasticError, ShardError
from elasticai_api.proto import elasticai_api_pb2 as pb

log = logging.getLogger("elasticai_api")

TRAINING = pb.TRAINING
EVALUATION = pb.EVALUATION
PREDICTION = pb.PREDICTION


class DataShardService:
    """The shards of one data set, for one worker. May be used by several threads of the process that made it.

    Arguments
        batch_size: samples in a batch.
        num_epochs: how often the data set is gone through; once, if not given.
        dataset_size: samples in the data set. Every worker must give the same. Not given, the data set has to be
            one that another worker announces.
        shuffle, shuffle_shards: shards come in another order in every epoch.
        task_type: TRAINING, EVALUATION or PREDICTION; what the shards are for.
        num_minibatches_per_shard: the size of a shard, in batches. 0: the master chooses.
        dataset_name: by which all workers mean the same data set.
        remainder: "drop" leaves out the last samples, if they make no whole batch; "fill" and None do not.
        shuffle_records: the records of a shard too come in another order, that of `shard.indices`. How far such a
            shard has come is unknown, so it counts as a whole.
        master_client: another master than the one that the environment names.
        out_of_order: by how many samples the program may be ahead of the order of fetching at most, because it
            reads in parallel. A sample counts as done so many samples later, when it surely is. A shuffle buffer has
            no such bound: a sample may stay in it for long. Shuffle by the arguments above instead.
    """

    def __init__(
        self,
        batch_size: int,
        num_epochs: int | None = None,
        dataset_size: int | None = None,
        shuffle: bool = False,
        shuffle_shards: bool = False,
        task_type: int = TRAINING,
        num_minibatches_per_shard: int = 0,
        dataset_name: str | None = None,
        master_client: Master | None = None,
        remainder: str | None = None,
        *,
        shuffle_records: bool = False,
        out_of_order: int = 0,
    ) -> None:
        check_batch_size(batch_size)
        unnamed = DefaultDatasetName.EVALUATION if task_type == EVALUATION else DefaultDatasetName.TRAINING
        self._batch_size = batch_size
        self._dataset_size = dataset_size
        self._dataset_name = dataset_name or unnamed
        self._task_type = task_type
        self._lock = threading.Lock()
        # The master gives again what it gave last to the same request, so there is one request at a time.
        self._asking = threading.Lock()
        self._held = HeldShards(out_of_order=out_of_order)
        # Shards whose last report is on its way, and which are not known to be lost.
        self._finishing: set[int] = set()
        self._supply = Supply()
        self._refilling = False
        # How often the data set was set back: what was asked for before that is void.
        self._set_backs = 0
        self._current: pb.Task | None = None
        self._shard_number = 0
        params = None
        if dataset_size is not None:
            params = DatasetParams(
                name=self._dataset_name,
                size=dataset_size,
                batch_size=batch_size,
                num_epochs=1 if num_epochs is None else num_epochs,
                shuffle=shuffle_records,
                shuffle_shards=shuffle or shuffle_shards,
                num_minibatches_per_shard=num_minibatches_per_shard,
                task_type=task_type,
                remainder=remainder,
            )
        self._master = master_client or build_master_client()
        self._reports = Reports(self._master, self._dataset_name, self._supply)
        # On garbage collection, at the end of the program at the latest: sends the last reports.
        self._ending = weakref.finalize(self, _end, self._reports, None if master_client else self._master)
        if params is not None:
            self._master.announce(params)

    @property
    def dataset_name(self) -> str:
        """The name by which all workers mean the same data set."""
        return self._dataset_name

    @property
    def batch_size(self) -> int:
        """Samples in a batch."""
        return self._batch_size

    # -- fetching --------------------------------------------------------------------------------------------

    def fetch_shard(self) -> pb.Shard | None:
        """The next shard to train on: the samples from `start` up to, not including, `end`.

        None when there is nothing more for this worker. Waits where others still hold shards that may come back.
        """
        task = self.get_task()
        self._shard_number = task.task_id
        return task.shard if task.type == self._task_type else None

    def epochs(self) -> Iterator[ShardEpoch]:
        """Yields this worker's part of one epoch after the other, so that there is a place for what is done in between.

        Example:
            >>> for epoch in service.epochs():
            ...     for indices in epoch.batches():
            ...         train(samples[indices])
            ...     save(model, epoch.number)
        """
        return iter(ShardEpochs(self))

    def get_task(self, task_type: int | None = None) -> pb.Task:
        """The next shard together with its number; of type NONE when there is nothing more for this worker."""
        self._reports.check()
        # A prefetched shard is returned at once, also while another thread fetches more.
        task, set_backs = self._next()
        if task is None:
            with self._asking:
                while True:
                    task, set_backs = self._next()
                    if task is not None:
                        break
                    fetched = self._fetch()
                    if not fetched:
                        return pb.Task(type=pb.NONE)
                    self._put(fetched, set_backs)
        if self._master.remote and self._supply.runs_low() and not self._refilling:
            self._refilling = True
            threading.Thread(target=self._refill, name="elasticai shards", daemon=True).start()
        return task

    def _next(self) -> tuple[pb.Task | None, int]:
        """Returns a prefetched shard, if there is one, and how often the data set had been set back when it was
        fetched.
        """
        with self._lock:
            self._lose()
            return self._take(), self._set_backs

    def _put(self, fetched: list[FetchedShard], set_backs: int) -> None:
        """`set_backs`: when they were asked for."""
        with self._lock:
            if set_backs == self._set_backs:
                self._supply.put(fetched)
                fetched = []
        # Leased before the data set was reset, or after? Leases from before are void.
        self._reports.give_back([shard.task.task_id for shard in fetched])
        if len(self._supply) > 1:
            self._reports.watch_supply()

    def _refill(self) -> None:
        """Beside the program, so that it does not wait for a master that is busy with something else."""
        try:
            with self._asking:
                with self._lock:
                    set_backs = self._set_backs
                if self._supply.runs_low():
                    self._reports.go_along()
                    self._put(self._master.fetch(self._dataset_name, self._supply.wanted()), set_backs)
        except ElasticError as error:
            # The program's own next call meets it too, and raises it.
            log.info("Prefetching shards failed: %s", error)
        finally:
            self._refilling = False

    def _fetch(self) -> list[FetchedShard]:
        self._reports.go_along()
        is_reported = self._reports.is_empty()
        fetched = self._master.fetch(self._dataset_name, self._supply.wanted())
        if not fetched and not is_reported:
            # A worker that seems to hold shards is not made to wait for more. Does it?
            self._reports.flush()
            fetched = self._master.fetch(self._dataset_name, self._supply.wanted())
        return fetched

    def _take(self) -> pb.Task | None:
        """The next of those that lie ready, for the program."""
        found = self._supply.take()
        if found is None:
            return None
        if found.task.shard.end > found.task.shard.start:
            self._held.add(found.task)
            self._current = self._held.first()
        return found.task

    def _lose(self) -> None:
        """Drops the shards that the master has requeued, and all prefetched ones, which it may have requeued too."""
        lost = self._reports.take_lost()
        self._held.lose(lost)
        self._finishing.difference_update(lost)
        if lost:
            self._reports.give_back(self._supply.clear())

    def get_current_task(self) -> pb.Task | None:
        """The oldest shard that is not done yet; when all are, the last one."""
        return self._current

    @property
    def ledger_id(self) -> str:
        """Names the ledger of the job, in which no two shards have the same number. Empty where no worker can be
        fenced: at the port for programs without the job's token.
        """
        return self._master.ledger_id

    @property
    def shard_number(self) -> int:
        """The number of the shard that `fetch_shard` returned last: that of its lease, which only grows."""
        return self._shard_number

    def still_holds(self, task_id: int) -> bool:
        """Asks the master whether a fetched shard is still this worker's, and waits for a master that is away.

        A worker that was cut off and replaced finds out by it that its shards are leased to others.
        """
        with self._lock:
            self._lose()
            known = self._held.known_progress(task_id)
        if known is None:
            return False
        # A report without news: the answer says whether the shard is lost.
        self._reports.note([known])
        self._reports.flush()
        with self._lock:
            self._lose()
            return self._held.known_progress(task_id) is not None

    def give_back(self, task_id: int) -> None:
        """Gives back a fetched shard that is not trained, for another worker. No effect on one that is lost."""
        with self._lock:
            self._held.drop(task_id)
        self._reports.give_back([task_id])
        self._reports.flush()

    # -- reporting -------------------------------------------------------------------------------------------

    def report_batch_done(
        self, batch_size: int | None = None, err_msg: str = "", task_ids: Sequence[int] = ()
    ) -> bool:
        """The program has trained on the next batch. Returns whether a shard is finished with it.

        Arguments
            batch_size: the samples in it, if not as many as in every batch.
            err_msg: the batch failed, for this reason. What is not done of its shards is given back.
            task_ids: the shards that it is of, where the program does not train in the order of fetching.
        """
        samples = batch_size or self._batch_size
        check_batch_size(samples)
        with self._lock:
            self._lose()
            if err_msg:
                failed = self._held.failed(samples, task_ids)
                progress = []
            else:
                failed = []
                progress = self._held.done(samples, task_ids)
            self._current = self._held.first() or self._current
        if failed:
            # First what is done of them: it is not to be trained again.
            self._reports.flush()
            for task_id in failed:
                self._master.fail(self._dataset_name, task_id, err_msg)
        self._reports.note(progress)
        return any(shard.ended for shard in progress) or bool(failed)

    def finish_shard(self, task_id: int, samples: int) -> bool:
        """Reports the samples that are left of a fetched shard, and waits until the master has the report.

        Returns False if the master rejected the report, or an earlier one: the lease was lost, and the samples are
        leased again. Also if the report was accepted and repeated because its reply got lost.
        """
        with self._lock:
            self._lose()
            if all(task.task_id != task_id for task in self._held):
                return False
            if self._held.known_progress(task_id) is not None:
                self._finishing.add(task_id)
        self.report_batch_done(samples, task_ids=[task_id])
        self._reports.flush()
        with self._lock:
            self._lose()
            is_accepted = task_id in self._finishing
            self._finishing.discard(task_id)
        return is_accepted

    def report_all_task_error(self, err_msg: str) -> None:
        """Gives back all shards that are not done, because of an error."""
        self._reports.flush()
        with self._lock:
            self._lose()
            held = self._held.clear()
        for task_id in held:
            self._master.fail(self._dataset_name, task_id, err_msg)

    def report_global_step(self, step: int, loss: float | None = None) -> None:
        """Reports the progress of the training, for the job's status."""
        self._reports.note_step(step, loss)

    def flush(self) -> None:
        """Waits until the master knows all that was reported."""
        self._reports.flush()

    # -- whole data sets -------------------------------------------------------------------------------------

    def get_shard_checkpoint(self) -> str:
        """Returns the samples that are still to be done, as JSON, to save beside the checkpoint of the model.

        Its keys are dataset_name, todo and doing (lists of [start, end]), current_epoch, num_epochs, batch_size,
        dataset_size and shuffle_shards; a master may add some of its own.
        """
        self._reports.flush()
        return self._master.checkpoint(self._dataset_name)

    def restore_shard_from_checkpoint(self, shard_checkpoint: str) -> bool:
        """Goes on from a checkpoint: what was done since then will be done again. Returns whether it could be read.

        The shards that this process holds count no more; fetch new ones.
        """
        self._reports.flush()
        if not self._master.restore(shard_checkpoint):
            return False
        self._forget()
        return True

    def get_current_epoch(self) -> int:
        """Returns the epoch whose shards are leased, from 1 on."""
        # While some lie ready here, the master has come further than this program.
        ahead = self._supply.epoch if self._supply else 0
        return ahead or self._master.epoch(self._dataset_name)

    @property
    def shard_epoch(self) -> int:
        """The epoch of the shard fetched last, from 1 on; 0 before the first, and where a master does not say."""
        return self._supply.epoch

    def reset_dataset(self) -> None:
        """Begins again with the first epoch. The shards that this process holds count no more."""
        self._reports.flush()
        self._master.reset(self._dataset_name)
        self._forget()

    def get_minibatch_count_per_epoch(self) -> int:
        """The whole batches in the data set."""
        if self._dataset_size is None:
            raise ShardError(f"The size of the data set {self._dataset_name!r} was not given.")
        return self._dataset_size // self._batch_size

    def close(self) -> None:
        """Reports what is not reported yet, and ends the connection. Happens by itself at the end of the program."""
        self._ending()

    def _forget(self) -> None:
        with self._lock:
            self._held.clear()
            ready = self._supply.clear()
            self._set_backs += 1
            self._current = None
        self._reports.forget()
        # Another thread may have fetched them after the data set was set back.
        self._reports.give_back(ready)


def _end(reports: Reports, master: Master | None) -> None:
    reports.close()
    if master is not None:
        master.close()
