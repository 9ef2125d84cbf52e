"""All-reduce of gradients: the sums of one member become the mean of all, in flat buckets.

Members weight by samples: the result is the mean over all samples of the step, however they are divided.
The sums of this member stay untouched in `parameter.grad` until all buckets have arrived, so that they can be sent
again when a peer dies on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from elasticai_api.pytorch.group import Group, Reduction

# As large as keeps the line busy, as small as lets the first be on its way while the others are still being filled.
_BUCKET_BYTES = 25 * 2**20


class _Bucket:
    def __init__(self, parameters: Sequence[Any]) -> None:
        self.parameters = list(parameters)
        self.renew()

    def renew(self) -> None:
        """Other memory, where the old one may still be written to."""
        first = self.parameters[0]
        total = sum(p.numel() for p in self.parameters)
        self.flat = torch.empty(total, dtype=first.dtype, device=first.device)
        self.views = []
        offset = 0
        for p in self.parameters:
            self.views.append(self.flat[offset : offset + p.numel()].view_as(p))
            offset += p.numel()

    def fill(self, weight: float) -> None:
        for p, view in zip(self.parameters, self.views, strict=True):
            if p.grad is None:
                view.zero_()
            else:
                grad = p.grad.to_dense() if p.grad.is_sparse else p.grad
                torch.mul(grad, weight, out=view)


class Gradients:
    """Of one model's parameters. All members have them in the same order."""

    def __init__(self, parameters: Iterable[Any]) -> None:
        # Also those that want none at the moment: all members have the same, whenever they have come.
        self.parameters = list(parameters)
        self._buckets = [_Bucket(group) for group in _groups(self.parameters)]
        # `parameter.grad` is the sum of gradients divided by this: they are means over so many samples.
        self.unit = 0.0
        self._dirty = False

    def clear(self) -> None:
        """Begins a new sum."""
        for p in self.parameters:
            p.grad = None
        self.unit = 0.0

    def expect(self, samples: float) -> None:
        """The next gradient added will be the mean over so many samples."""
        if self.unit and samples and samples != self.unit:
            factor = self.unit / samples
            for p in self.parameters:
                if p.grad is not None:
                    p.grad.mul_(factor)
        if samples:
            self.unit = float(samples)

    def reduce(self, group: Group, numbers: Any) -> None:
        """Adds up `numbers` (whose first is this member's samples) and the gradients over all members.

        Afterwards `parameter.grad` is the mean over all samples, for the optimizer; None where no member had one.
        Raises `GroupBroken`, with the sums of this member as they were.
        """
        if self._dirty:
            # The group before this one may still be reading and writing there.
            for bucket in self._buckets:
                bucket.renew()
        self._dirty = True
        used = torch.tensor([float(p.grad is not None) for p in self.parameters], dtype=torch.float64)
        control = torch.cat([numbers, used])
        under_way: list[Reduction] = [group.start_sum([control])]
        for bucket in self._buckets:
            bucket.fill(self.unit)
            under_way.append(group.start_sum([bucket.flat]))
        group.wait(under_way[0])
        samples = float(control[0])
        for bucket, reduction in zip(self._buckets, under_way[1:], strict=True):
            group.wait(reduction)
            if samples:
                bucket.flat.div_(samples)
        self._dirty = False
        numbers.copy_(control[: len(numbers)])
        views = {
            id(p): view
            for bucket in self._buckets
            for p, view in zip(bucket.parameters, bucket.views, strict=True)
        }
        for p, count in zip(self.parameters, control[len(numbers) :].tolist(), strict=True):
            p.grad = views[id(p)] if count else None


def _groups(parameters: Sequence[Any]) -> list[list[Any]]:
    """Parameters of one kind that fit into a bucket, the last first: their gradients are ready first."""
    groups: list[list[Any]] = []
    kind, room = None, 0
    for p in reversed(parameters):
        size = p.numel() * p.element_size()
        if (p.dtype, p.device) != kind or size > room:
            groups.append([])
            kind, room = (p.dtype, p.device), _BUCKET_BYTES
        groups[-1].append(p)
        room -= size
    return groups
