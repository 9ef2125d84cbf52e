"""A master inside the program: without a job around it, a program runs by itself and gets every shard.

Epochs, the order of shards, what counts as done and what a checkpoint holds are as in a job with one worker; so a
program is debugged by just running it. Every service has a master of its own here: to build a data set again is to
begin again.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from elasticai_api.common.master import DatasetParams, FetchedShard, Master, ShardProgress
from elasticai_api.common.permutation import Permutation
from elasticai_api.errors import ShardError
from elasticai_api.proto import elasticai_api_pb2 as pb

log = logging.getLogger("elasticai_api")

# For programs that leave the size of a shard to the master: small enough to share, large enough not to matter.
_BATCHES_PER_SHARD = 8
# So often is a shard tried that ends in an error.
_ATTEMPTS = 3


class _Range(NamedTuple):
    start: int
    end: int
    failures: int = 0


@dataclass(kw_only=True)
class _Doing:
    start: int
    position: int
    end: int
    failures: int


class AloneMaster(Master):
    """Leases all shards to the only worker. A data set is shuffled by `seed`: the same every time."""

    remote = False

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed
        self.ledger_id = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._datasets: dict[str, _Dataset] = {}

    def announce(self, params: DatasetParams) -> None:
        with self._lock:
            known = self._datasets.get(params.name)
            if known is None:
                self._datasets[params.name] = _Dataset(params, self._seed)
            elif known.params != params:
                raise ShardError(
                    f"The data set {params.name!r} is announced as {params}, and was as {known.params}."
                )

    def fetch(self, dataset: str, count: int) -> list[FetchedShard]:
        """Returns one shard, whatever the count: here a call costs nothing."""
        with self._lock:
            found = self._dataset(dataset).next_task()
            return [] if found is None else [FetchedShard(task=found, epoch=self._dataset(dataset).epoch)]

    def progress(
        self,
        dataset: str,
        shards: Sequence[ShardProgress],
        *,
        global_step: int | None = None,
        loss: float | None = None,
        given_back: Sequence[int] = (),
    ) -> list[int]:
        with self._lock:
            self._dataset(dataset).give_back(given_back)
            return self._dataset(dataset).progress(shards)

    def fail(self, dataset: str, task_id: int, message: str) -> None:
        with self._lock:
            self._dataset(dataset).fail(task_id, message)

    def epoch(self, dataset: str) -> int:
        with self._lock:
            return self._dataset(dataset).epoch

    def checkpoint(self, dataset: str) -> str:
        with self._lock:
            return json.dumps(self._dataset(dataset).checkpoint())

    def restore(self, content: str) -> bool:
        try:
            document = _read(content)
            with self._lock:
                self._dataset(document["dataset_name"]).restore(document)
        except ShardError as error:
            log.warning("A checkpoint of shards cannot be restored: %s", error)
            return False
        return True

    def reset(self, dataset: str) -> None:
        with self._lock:
            before = self._dataset(dataset)
            self._datasets[dataset] = _Dataset(before.params, self._seed, tasks=before.tasks)

    def close(self) -> None:
        pass

    def _dataset(self, name: str) -> _Dataset:
        try:
            return self._datasets[name]
        except KeyError:
            known = ", ".join(map(repr, self._datasets)) or "none"
            raise ShardError(
                f"The data set {name!r} is not announced (known: {known}). Give its dataset_size and num_epochs."
            ) from None


class _Dataset:
    """The account of one data set: the samples that are not leased yet, and those in work."""

    def __init__(self, params: DatasetParams, seed: int, *, tasks: int = 0) -> None:
        self.params = params
        # Lease numbers used so far: none is reused.
        self.tasks = tasks
        self.epoch = 0
        self._seed = seed
        self._shard_size = params.batch_size * (params.num_minibatches_per_shard or _BATCHES_PER_SHARD)
        self._count = -(-params.used_size // self._shard_size)
        # Shards of the current epoch: requeued or restored ones, before those never leased.
        self._queue: deque[_Range] = deque()
        self._given = self._count
        self._order: Permutation | range = range(self._count)
        self._doing: dict[int, _Doing] = {}

    def next_task(self) -> pb.Task | None:
        found = self._next_range()
        if found is None:
            return None
        self.tasks += 1
        self._doing[self.tasks] = _Doing(
            start=found.start, position=found.start, end=found.end, failures=found.failures
        )
        shard = pb.Shard(
            name=self.params.name, start=found.start, end=found.end, indices=self._indices(found)
        )
        return pb.Task(task_id=self.tasks, shard=shard, type=self.params.task_type)  # type: ignore[arg-type]

    def progress(self, shards: Sequence[ShardProgress]) -> list[int]:
        lost = []
        for shard in shards:
            doing = self._doing.get(shard.task_id)
            if doing is None:
                lost.append(shard.task_id)
            elif shard.ended:
                del self._doing[shard.task_id]
            else:
                doing.position = shard.position
        return lost

    def give_back(self, task_ids: Sequence[int]) -> None:
        for task_id in sorted(task_ids, reverse=True):
            doing = self._doing.pop(task_id, None)
            if doing is not None:
                self._queue.appendleft(_Range(doing.position, doing.end, doing.failures))

    def fail(self, task_id: int, message: str) -> None:
        doing = self._doing.pop(task_id, None)
        if doing is None:
            return
        failures = doing.failures + 1
        if failures >= _ATTEMPTS:
            raise ShardError(
                f"The samples {doing.position} to {doing.end - 1} of {self.params.name!r} failed {failures} times: "
                f"{message}"
            )
        self._queue.appendleft(_Range(doing.position, doing.end, failures))

    def checkpoint(self) -> dict[str, Any]:
        params = self.params
        todo = [(part.start, part.end) for part in self._queue]
        todo += [self._shard(self._order[place]) for place in range(self._given, self._count)]
        return {
            "dataset_name": params.name,
            "todo": _joined(todo),
            "doing": [[doing.position, doing.end] for doing in self._doing.values()],
            "current_epoch": self.epoch,
            "num_epochs": params.num_epochs,
            "batch_size": params.batch_size,
            "dataset_size": params.size,
            "shuffle_shards": params.shuffle_shards,
        }

    def restore(self, document: dict[str, Any]) -> None:
        if document["dataset_size"] != self.params.size:
            raise ShardError(
                f"The checkpoint is of a data set of {document['dataset_size']} samples; "
                f"{self.params.name!r} has {self.params.size}."
            )
        ranges = [*document["doing"], *document["todo"]]
        for start, end in ranges:
            if not 0 <= start < end <= self.params.size:
                raise ShardError(
                    f"The checkpoint has the range [{start}, {end}), which is not in the data set."
                )
        pieces = [piece for start, end in ranges for piece in self._pieces(start, end)]
        if self.params.shuffle_shards and pieces:
            order = Permutation(
                len(pieces), f"{self._seed}/{self.params.name}/{document['current_epoch']}/restored"
            )
            pieces = [pieces[order[place]] for place in range(len(pieces))]
        self.epoch = document["current_epoch"]
        self._queue = deque(pieces)
        self._given = self._count
        self._doing.clear()

    def _next_range(self) -> _Range | None:
        if self._queue:
            return self._queue.popleft()
        if self._given == self._count:
            if self.epoch == self.params.num_epochs:
                return None
            self._begin_epoch()
        place = self._given
        self._given += 1
        return _Range(*self._shard(self._order[place]))

    def _begin_epoch(self) -> None:
        self.epoch += 1
        self._given = 0
        if self.params.shuffle_shards:
            self._order = Permutation(self._count, f"{self._seed}/{self.params.name}/{self.epoch}")

    def _shard(self, number: int) -> tuple[int, int]:
        start = number * self._shard_size
        return start, min(start + self._shard_size, self.params.used_size)

    def _pieces(self, start: int, end: int) -> Iterator[_Range]:
        """A range cut at the borders of shards."""
        while start < end:
            border = min(end, (start // self._shard_size + 1) * self._shard_size)
            yield _Range(start, border)
            start = border

    def _indices(self, part: _Range) -> list[int]:
        if not self.params.shuffle:
            return []
        order = Permutation(
            part.end - part.start, f"{self._seed}/{self.params.name}/{self.epoch}/{part.start}"
        )
        return [part.start + order[place] for place in range(len(order))]


def _joined(ranges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The same samples in as few ranges as possible: a checkpoint is not to grow with the data set."""
    joined: list[list[int]] = []
    for start, end in sorted(ranges):
        if joined and joined[-1][1] == start:
            joined[-1][1] = end
        else:
            joined.append([start, end])
    return joined


def _read(content: str) -> dict[str, Any]:
    try:
        document = json.loads(content)
        return {
            "dataset_name": str(document["dataset_name"]),
            "dataset_size": int(document["dataset_size"]),
            "current_epoch": int(document["current_epoch"]),
            **{key: [(int(start), int(end)) for start, end in document[key]] for key in ("todo", "doing")},
        }
    except (ValueError, TypeError, KeyError) as error:
        raise ShardError(f"This is no shard checkpoint: {error!r}.") from error
