"""A team of one process without a master: a program is debugged by just running it.

It goes the same way through the data as a team does, with the same steps: so many micro-batches each, whose gradients
are added up before the optimizer steps.
"""

from __future__ import annotations

from collections.abc import Iterator

from elasticai_api.common.permutation import Permutation
from elasticai_api.pytorch.gradients import Gradients
from elasticai_api.pytorch.place import MicroBatch, Place
from elasticai_api.pytorch.replica import Replica


class Solo:
    """The interface of `Team` that a program uses, for one process."""

    def __init__(
        self, *, replica: Replica, size: int, batch_size: int, epochs: int, per_step: int, shuffle: bool
    ) -> None:
        self._replica = replica
        self._size = size
        self._batch_size = batch_size
        self._epochs = epochs
        self.per_step = per_step
        self._shuffle = shuffle
        self._gradients = Gradients(replica.parameters())
        self._done = 0
        self._samples = 0
        self._loss = 0.0
        self.place = Place(step=0, epoch=0, at=0)
        self.last_loss: float | None = None
        self.version = 0

    @property
    def count(self) -> int:
        return -(-self._size // self._batch_size)

    @property
    def first(self) -> bool:
        return True

    @property
    def members(self) -> tuple[str, ...]:
        return ("alone",)

    @property
    def complete(self) -> bool:
        return self.place.epoch >= self._epochs

    def next(self) -> MicroBatch | None:
        return None if self.complete else self._micro_batch(self.place, self._done)

    def expect(self, samples: int, *, last: bool = True) -> None:
        self._gradients.expect(samples)

    def done(self, samples: int, loss: float) -> bool:
        self._done += 1
        self._samples += samples
        self._loss += loss * samples
        if self._done < self._step_size(self.place):
            return False
        self.last_loss = self._loss / self._samples
        for parameter in self._gradients.parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(self._gradients.unit / self._samples)
        self._replica.apply()
        self._gradients.clear()
        self._done, self._samples, self._loss = 0, 0, 0.0
        self.place = self._after(self.place)
        return True

    def upcoming(self, version: int) -> Iterator[MicroBatch]:
        place, done = self.place, self._done
        while place.epoch < self._epochs:
            for offset in range(done, self._step_size(place)):
                yield self._micro_batch(place, offset)
            place, done = self._after(place), 0

    def _step_size(self, place: Place) -> int:
        return min(self.per_step, self.count - place.at)

    def _after(self, place: Place) -> Place:
        at = place.at + self._step_size(place)
        if at < self.count:
            return Place(step=place.step + 1, epoch=place.epoch, at=at)
        return Place(step=place.step + 1, epoch=place.epoch + 1, at=0)

    def _micro_batch(self, place: Place, offset: int) -> MicroBatch:
        at = place.at + offset
        number = Permutation(self.count, f"epoch {place.epoch}")[at] if self._shuffle else at
        start = number * self._batch_size
        end = min(start + self._batch_size, self._size)
        return MicroBatch(step=place.step, epoch=place.epoch, place=at, start=start, end=end)
