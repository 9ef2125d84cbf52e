"""The order of an epoch's micro-batches, as the master tells it, a piece at a time."""

from __future__ import annotations

import threading

from elasticai_api.proto import allreduce_pb2 as pb
from elasticai_api.pytorch.place import MicroBatch
from elasticai_api.pytorch.standings import Line

_PIECE = 256
# Pieces kept: those being worked on and being read ahead, and what comes next.
_KEPT = 16


class Order:
    """Safe to ask from several threads: the one that trains, and those that read ahead."""

    def __init__(self, line: Line, dataset: str, *, size: int, batch_size: int) -> None:
        self._line = line
        self._dataset = dataset
        self._size = size
        self._batch_size = batch_size
        self._pieces: dict[tuple[int, int], list[int]] = {}
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """Micro-batches of an epoch."""
        return -(-self._size // self._batch_size)

    def micro_batch(self, *, step: int, epoch: int, place: int) -> MicroBatch:
        with self._lock:
            starts = self._piece(epoch, place // _PIECE)
        start = starts[place % _PIECE]
        end = min(start + self._batch_size, self._size)
        return MicroBatch(step=step, epoch=epoch, place=place, start=start, end=end)

    def _piece(self, epoch: int, number: int) -> list[int]:
        key = (epoch, number)
        if key not in self._pieces:
            request = pb.OrderRequest(dataset=self._dataset, epoch=epoch, first=number * _PIECE, count=_PIECE)
            self._pieces[key] = list(self._line.call(self._line.stub.Order, request).starts)
            while len(self._pieces) > _KEPT:
                del self._pieces[next(iter(self._pieces))]
        return self._pieces[key]
