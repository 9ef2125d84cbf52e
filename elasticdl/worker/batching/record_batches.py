"""Makes batches of shards for PyTorch and Paddle: runs the definition's feed of records over one shard at a time.

Such a feed is `feed(dataset, mode, metadata)`: it is given an iterable of the records of one shard and returns, or
yields, unbatched samples: (features, labels), in prediction mode (see `model_inputs.py`) features alone if it likes.
Most feeds give one sample for each record, in order, and then a part of a shard can be accounted for. Others shuffle,
filter or repeat. No flag says which: records taken and samples given are counted, and as long as they are in step the
feed is one to one; a shard where they fall out of step is from there on all or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from elasticdl.data.reader import BadRange, BadRecords, Reader, Record
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.worker.batching.shard_batches import Stop
from elasticdl.worker.trainer import Batch, Shard

Feed = Callable[..., Any]
# Makes a batch of samples.
Collate = Callable[[list[Any]], Any]
# Separates a collated batch into its features and its labels.
Split = Callable[[Any], tuple[Any, Any]]
# The samples of a data set of the framework's own; None for anything else.
OwnSamples = Callable[[Any], Iterator[Any] | None]


@dataclass(kw_only=True)
class Records:
    """The `dataset` a feed is given: the records of one shard. Iterating again reads them again."""

    reader: Reader
    shard: Shard
    skip_bad: bool
    stop: Stop
    # Records handed to the feed so far. Reading them again counts one too many, and is never in step.
    given: int = 0
    rounds: int = 0
    # The samples of the shard before this index have been handed out or were found bad.
    position: int = 0
    bad: list[BadRange] = field(default_factory=list)

    def __iter__(self) -> Iterator[Record]:
        shard, stop = self.shard, self.stop
        self.given += self.rounds > 0
        self.rounds += 1
        self.position = position = shard.start
        while position < shard.end:
            try:
                for record in self.reader.read(position, shard.end):
                    self.position = position = position + 1
                    self.given += 1
                    yield record
                    if stop.wanted:
                        return
                break
            except BadRecords as error:
                if not self.skip_bad or error.bad.end <= position:
                    raise
                # A damaged block may reach beyond this shard: the workers of the other shards report the rest.
                end = min(error.bad.end, shard.end)
                found = BadRange(start=position, end=end, where=error.bad.where, reason=error.bad.reason)
                if found not in self.bad:
                    self.bad.append(found)
                self.position = position = end
        if position < shard.end:
            raise UserError(
                f"{self.reader.origin} has no samples [{position}, {shard.end}) any more.",
                hint="Data must not change while a job is reading it.",
            )


def shard_batches(
    *,
    reader: Reader,
    shard: Shard,
    feed: Feed,
    collate: Collate,
    split: Split,
    own_samples: OwnSamples,
    mode: Mode,
    batch_size: int,
    skip_bad: bool,
    stop: Stop,
) -> Iterator[Batch]:
    """The batches of one shard. The last one is known to be so, be it empty.

    As long as the feed is one to one, the samples of a batch are [position - size, position): a batch ends
    where bad samples lie in between, and those at the very end come with an empty one.
    """
    records = Records(reader=reader, shard=shard, skip_bad=skip_bad, stop=stop)
    bad = records.bad
    atomic = False
    taken = reported = found = 0
    position = shard.start
    samples: list[Any] = []

    def made(samples: list[Any]) -> tuple[Any, Any]:
        return split(collate(samples))

    for sample in _samples(feed(records, mode, reader.metadata), own_samples):
        if len(samples) == batch_size or (len(bad) != found and samples):
            # Only now it is certain that this was not the last batch. What was found bad on the way to
            # this sample is reported with the next.
            yield _batch(samples, made, shard, position=position, atomic=atomic, bad=bad[reported:found])
            reported = found
            samples = []
        samples.append(sample)
        taken += 1
        if records.given != taken:
            atomic = True
        position = records.position
        found = len(bad)
    if stop.wanted:
        return
    atomic = atomic or records.given != taken or records.position != shard.end
    if samples and len(bad) != found:
        yield _batch(samples, made, shard, position=position, atomic=atomic, bad=bad[reported:found])
        reported = found
        samples = []
    yield _batch(samples, made, shard, position=shard.end, atomic=atomic, bad=bad[reported:], last=True)


def _batch(
    samples: list[Any],
    made: Split,
    shard: Shard,
    *,
    position: int,
    atomic: bool,
    bad: list[BadRange],
    last: bool = False,
) -> Batch:
    features, labels = made(samples) if samples else (None, None)
    return Batch(
        shard=shard,
        position=position,
        atomic=atomic,
        last=last,
        size=len(samples),
        features=features,
        labels=labels,
        bad=tuple(bad),
    )


def _samples(fed: Any, own_samples: OwnSamples) -> Iterator[Any]:
    """The samples in whatever a feed may return."""
    own = own_samples(fed)
    if own is not None:
        return own
    if isinstance(fed, tuple) or not isinstance(fed, Iterable) or isinstance(fed, (str, bytes, dict)):
        raise UserError(
            f"The feed returns {type(fed).__name__}, and should return an iterable of samples.",
            hint="Yield (features, labels) for each record, or return a list or a Dataset of such pairs; arrays of a "
            "whole shard can be returned as zip(features, labels).",
        )
    return iter(fed)


def refuse_loader() -> UserError:
    return UserError(
        "The feed returns a DataLoader that makes batches or has workers of its own.",
        hint="Return the samples themselves: batches are made, and read ahead, behind the feed.",
    )
