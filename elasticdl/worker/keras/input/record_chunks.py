"""The records of one shard, in chunks: what is handed from Python to TensorFlow's input pipeline.

A call from TensorFlow into Python costs as much for one record as for hundreds, so records cross in chunks, and
are taken apart again on the other side. A chunk is asked for by its number: a feed may go through its data set
more than once, or in several branches side by side, so chunks that were read before can be had again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

from elasticdl.data.reader import BadRange, BadRecords, Reader, Record
from elasticdl.errors import UserError
from elasticdl.worker.keras.input.record_layout import Layout, layout_of
from elasticdl.worker.trainer import Shard

# Enough records that the call is cheap for each of them, few enough that the first batch does not wait for long.
CHUNK_RECORDS = 256
CHUNK_BYTES = 4 << 20


class ShardRecords:
    """Reads one shard, once from front to back, and again in parts where that is asked for. Thread-safe.

    `lock` is the reader's: all shards of a reader share it. Without a layout the first record gives it.
    """

    def __init__(
        self,
        reader: Reader,
        shard: Shard,
        *,
        skip_bad: bool,
        lock: threading.Lock,
        layout: Layout | None = None,
    ) -> None:
        self.shard = shard
        self.layout = layout
        # Whether the feed has asked for anything.
        self.asked = False
        self._reader = reader
        self._skip_bad = skip_bad
        self._lock = lock
        self._source: Iterator[Record] | None = None
        self._position = shard.start
        # Read already, but of another shape than the records of the chunk it would have come into.
        self._held: tuple[int, Record] | None = None
        # Sample index where each chunk begins, and the chunk read last, for feeds with two branches.
        self._starts: list[int] = []
        self._latest: tuple[int, list[Record]] = (-1, [])
        self._bad: list[BadRange] = []
        self._returned = 0

    def has_records(self) -> bool:
        """Reads the first chunk, so that the layout is known if there is anything to read."""
        return bool(self._chunk(0))

    def chunk(self, number: int) -> list[Record]:
        """The records of a chunk, none behind the last. Raises `BadRecords` unless they are to be skipped."""
        self.asked = True
        return self._chunk(number)

    def position_after(self, count: int) -> int:
        """The index behind the sample that is the shard's `count`-th readable one."""
        with self._lock:
            index, left = self.shard.start, count
            for bad in self._bad:
                if index + left <= bad.start:
                    break
                left -= bad.start - index
                index = bad.end
            return index + left

    @property
    def readable(self) -> int:
        """Returns the number of records read so far, counting each once."""
        with self._lock:
            return self._position - self.shard.start - sum(bad.end - bad.start for bad in self._bad)

    def take_bad(self, before: int | None = None) -> tuple[BadRange, ...]:
        """The unreadable ranges that were not returned yet: those before an index, or all."""
        with self._lock:
            begin = self._returned
            while self._returned < len(self._bad) and (
                before is None or self._bad[self._returned].start < before
            ):
                self._returned += 1
            return tuple(self._bad[begin : self._returned])

    def _chunk(self, number: int) -> list[Record]:
        with self._lock:
            latest, records = self._latest
            if number != latest:
                if number < len(self._starts):
                    return self._read_again(number)
                records = self._read_on()
                self._latest = (number, records)
            return records

    def _read_on(self) -> list[Record]:
        records: list[Record] = []
        shapes, size = None, 0
        while len(records) < CHUNK_RECORDS and size < CHUNK_BYTES:
            item = self._held or self._read_one()
            self._held = None
            if item is None:
                break
            index, record = item
            if self.layout is None:
                self.layout = layout_of(self._reader.kind, self._reader.metadata, record)
            found = self.layout.shapes(record)
            if not records:
                self._starts.append(index)
                shapes = found
            elif found != shapes:
                self._held = item
                break
            records.append(record)
            size += len(record) if isinstance(record, bytes) else 0
        return records

    def _read_one(self) -> tuple[int, Record] | None:
        while self._position < self.shard.end:
            if self._source is None:
                self._source = iter(self._reader.read(self._position, self.shard.end))
            try:
                record = next(self._source)
            except StopIteration:
                raise UserError(
                    f"The reader of {self._reader.origin} ended before sample {self._position}, where the range"
                    f" [{self.shard.start}, {self.shard.end}) was asked for."
                ) from None
            except BadRecords as error:
                if not self._skip_bad:
                    raise
                self._pass_over(error)
                continue
            self._position += 1
            return self._position - 1, record
        return None

    def _pass_over(self, error: BadRecords) -> None:
        start, end = max(error.bad.start, self._position), min(error.bad.end, self.shard.end)
        if end <= self._position:
            # The reader would have us come back to the same place forever.
            raise error
        self._bad.append(BadRange(start=start, end=end, where=error.bad.where, reason=error.bad.reason))
        self._position = end
        self._source = None

    def _read_again(self, number: int) -> list[Record]:
        begin = self._starts[number]
        if number + 1 < len(self._starts):
            end = self._starts[number + 1]
        else:
            end = self._held[0] if self._held is not None else self._position
        records: list[Record] = []
        while begin < end:
            try:
                for record in self._reader.read(begin, end):
                    records.append(record)
                break
            except BadRecords as error:
                begin = error.bad.end
        return records
