"""Batches of a map-style data set in the order a team wants them, read ahead by loader processes if asked for.

What a member computes next is known as long as the members stay the same. When they change, what was read ahead for
others is dropped, and reading goes on from where the member is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

from elasticai_api.errors import ElasticError
from elasticai_api.pytorch.place import MicroBatch


class Upcoming(Protocol):
    version: int

    def upcoming(self, version: int) -> Iterator[MicroBatch]: ...


class _MicroBatches(Sampler[list[int]]):  # type: ignore[misc]
    """The samples of what comes next; remembers in which order they were handed to the loader."""

    def __init__(self) -> None:
        self.team: Upcoming | None = None
        self.version = -1
        self.issued: deque[MicroBatch] = deque()

    def begin(self, team: Upcoming) -> None:
        self.team, self.version = team, team.version
        self.issued.clear()

    def __iter__(self) -> Iterator[list[int]]:
        assert self.team is not None
        for micro in self.team.upcoming(self.version):
            self.issued.append(micro)
            yield list(range(micro.start, micro.end))


# Attributes of a `DataLoader` that are arguments of its constructor, and that do not decide which samples come next.
_OPTIONS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
)


@dataclass(frozen=True, kw_only=True)
class LoaderPlan:
    """The batching of a program's own `DataLoader`."""

    dataset: Any
    batch_size: int
    # Without the last samples, where the loader drops them.
    size: int
    shuffle: bool
    options: dict[str, Any]


def plan_of(loader: Any) -> LoaderPlan:
    """Reads a `DataLoader` of a program, whose batches are to be divided among workers.

    Raises:
        ElasticError: The loader has an order or batches of its own, which several workers cannot share.
    """
    if isinstance(loader.dataset, IterableDataset):
        raise ElasticError(
            "The loader's data set is a stream (IterableDataset), whose samples have no index. Give a map-style one."
        )
    sampler = loader.sampler
    if type(loader.batch_sampler) is not BatchSampler or type(sampler) not in (
        RandomSampler,
        SequentialSampler,
    ):
        raise ElasticError(
            "The loader has a sampler of its own. The order of samples is shared by all workers: give a DataLoader "
            "with batch_size and shuffle only."
        )
    if type(sampler) is RandomSampler and (sampler.replacement or sampler.num_samples != len(loader.dataset)):
        raise ElasticError(
            "The loader's sampler draws with replacement, or not all samples: an epoch here has each once."
        )
    size = len(loader.dataset)
    if loader.drop_last:
        size -= size % loader.batch_size
    return LoaderPlan(
        dataset=loader.dataset,
        batch_size=loader.batch_size,
        size=size,
        shuffle=type(sampler) is RandomSampler,
        options={name: getattr(loader, name) for name in _OPTIONS},
    )


class Batches:
    def __init__(self, dataset: Any, **options: Any) -> None:
        """`options`: those of `DataLoader`, except what the team decides."""
        taken = {"batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"} & options.keys()
        if taken:
            raise ElasticError(f"The loader of a team decides about {', '.join(sorted(taken))} itself.")
        self._sampler = _MicroBatches()
        if options.get("num_workers"):
            # They outlast a change of members.
            options["persistent_workers"] = True
        self._loader = DataLoader(dataset, batch_sampler=self._sampler, **options)
        self._batches: Iterator[Any] | None = None

    def of(self, team: Upcoming, micro: MicroBatch) -> Any:
        """The batch of this micro-batch, which the team has just asked for."""
        if self._batches is not None and self._sampler.version == team.version and self._sampler.team is team:
            found = self._take(micro)
            if found is not None:
                return found[0]
        self._sampler.begin(team)
        self._batches = iter(self._loader)
        found = self._take(micro)
        if found is None:
            raise ElasticError(f"Micro-batch {micro.place} of epoch {micro.epoch} was not to be expected.")
        return found[0]

    def _take(self, micro: MicroBatch) -> tuple[Any] | None:
        assert self._batches is not None
        try:
            batch = next(self._batches)
        except StopIteration:
            return None
        issued = self._sampler.issued.popleft()
        return (batch,) if (issued.epoch, issued.place) == (micro.epoch, micro.place) else None
