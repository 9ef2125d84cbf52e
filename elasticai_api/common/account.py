"""The shards that a worker holds, and which of their samples are done: plain state, no network, no threads.

Batches are only counted: a program trains on the samples in the order in which it fetched them, so the first n samples
of its shards are the n that it has reported. Where a pipeline changes the order within a bound (several loader
processes, parallel reads), the bound is `out_of_order`: a sample is certainly done once so many more have been
reported, or all that were fetched.

A shard that was requeued, or given back because of an error, is still counted, since its samples are still in the
pipeline. Only its progress is no longer reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from elasticai_api.common.master import ShardProgress
from elasticai_api.errors import ShardError
from elasticai_api.proto import elasticai_api_pb2 as pb


@dataclass(kw_only=True)
class _Held:
    task: pb.Task
    counted: int = 0
    batches: int = 0
    void: bool = False

    @property
    def size(self) -> int:
        return self.task.shard.end - self.task.shard.start

    @property
    def left(self) -> int:
        return self.size - self.counted

    def known_progress(self) -> ShardProgress:
        """What the master may know already."""
        done = 0 if self.task.shard.indices else self.counted
        return ShardProgress(
            task_id=self.task.task_id,
            position=self.task.shard.start + done,
            batches=self.batches,
            ended=False,
        )

    def progress(self) -> ShardProgress | None:
        """Returns the progress that is not reported yet, if any."""
        if self.void:
            return None
        # In a shard with an order of its own, a position tells nothing of which records are done.
        if self.left and self.task.shard.indices:
            return None
        return ShardProgress(
            task_id=self.task.task_id,
            position=self.task.shard.start + self.counted,
            batches=self.batches,
            ended=self.left == 0,
        )


class HeldShards:
    """The shards of one data set that one worker holds, in the order in which it fetched them."""

    def __init__(self, *, out_of_order: int = 0) -> None:
        if out_of_order < 0:
            raise ShardError(f"out_of_order must be at least 0, not {out_of_order}.")
        self.out_of_order = out_of_order
        self._held: dict[int, _Held] = {}
        # Samples that were reported, of which it is not certain yet which they are.
        self._uncertain = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[pb.Task]:
        return (held.task for held in self._held.values())

    @property
    def samples_left(self) -> int:
        """Samples that were fetched and not yet counted as done."""
        return sum(held.left for held in self._held.values())

    def add(self, task: pb.Task) -> None:
        """A shard was fetched."""
        self._held[task.task_id] = _Held(task=task)

    def first(self) -> pb.Task | None:
        """The shard that is worked on."""
        return next(iter(self), None)

    def done(self, samples: int, task_ids: Sequence[int] = ()) -> list[ShardProgress]:
        """Counts a batch, on the shards named or else on the oldest. Returns what there is to tell."""
        shards = self._named(task_ids)
        if not task_ids:
            self._uncertain += samples
            if self._uncertain >= self.samples_left:
                samples, self._uncertain = self.samples_left, 0
            else:
                samples = max(0, self._uncertain - self.out_of_order)
                self._uncertain -= samples
        reports = []
        first = True
        for held in shards:
            part = min(samples, held.left)
            if part == 0:
                continue
            samples -= part
            held.counted += part
            # A batch over the border of two shards is one batch.
            held.batches += first
            first = False
            progress = held.progress()
            if progress is not None:
                reports.append(progress)
            if held.left == 0:
                del self._held[held.task.task_id]
        return reports

    def failed(self, samples: int, task_ids: Sequence[int] = ()) -> list[int]:
        """Counts a batch that failed. Returns its shards, whose progress must not be reported any more."""
        shards = self._named(task_ids)
        reach = samples if task_ids else samples + self._uncertain
        touched = []
        for held in shards:
            if reach <= 0:
                break
            reach -= held.left
            if not held.void:
                held.void = True
                touched.append(held.task.task_id)
        self.done(samples, task_ids)
        return touched

    def lose(self, task_ids: Iterable[int]) -> None:
        """Marks shards as leased to another worker."""
        for task_id in task_ids:
            if task_id in self._held:
                self._held[task_id].void = True

    def known_progress(self, task_id: int) -> ShardProgress | None:
        """How far a shard has come, without anything new. None if it is not this worker's any more."""
        held = self._held.get(task_id)
        return None if held is None or held.void else held.known_progress()

    def drop(self, task_id: int) -> None:
        """Forgets a shard, as if it had never been fetched."""
        self._held.pop(task_id, None)

    def clear(self) -> list[int]:
        """Drops all shards. Returns those that were still this worker's."""
        live = [task_id for task_id, held in self._held.items() if not held.void]
        self._held.clear()
        self._uncertain = 0
        return live

    def _named(self, task_ids: Sequence[int]) -> list[_Held]:
        unknown = [task_id for task_id in task_ids if task_id not in self._held]
        if unknown:
            raise ShardError(f"The tasks {unknown} are not held by this process: {sorted(self._held)} are.")
        return [self._held[task_id] for task_id in task_ids] if task_ids else list(self._held.values())
