"""All-reduce of gradients: the sums of one member become the mean of all, in flat buckets.

Members weight by samples: the result is the mean over all samples of the step, however they are divided. The sums of
this member stay untouched in `parameter.grad` until all buckets have arrived, so that they can be sent again when a
peer dies on the way.

Overlap: with a member's last micro-batch of a step, buckets are sent during the backward pass, each when its gradients
are complete. Members may differ in that: buckets are sent in the same order in any case, and the rest of the step
follows them.

Failure modes
    A program changes gradients after its backward pass, because it clips them or has a second one: the sent buckets are
    wrong. The versions of the tensors show the change; all members then send all buckets again, and the member whose
    program does that stops to overlap. Changes through `.data` show in no version. The first steps with overlap are
    therefore on trial: nothing is sent early, and the buckets that would have been sent are compared with the final
    ones. A peer dies during the backward pass: `reduce` reports that.
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from elasticai_api.pytorch.group import Group, GroupBroken, Reduction

log = logging.getLogger("elasticai_api")

# As large as keeps the line busy, as small as lets the first be on its way while the others are still being filled.
_BUCKET_BYTES = 25 * 2**20
# Steps in which a program shows that it leaves its gradients as the backward pass has made them.
_TRIAL_STEPS = 2


class _Bucket:
    def __init__(self, parameters: Sequence[Any]) -> None:
        self.parameters = list(parameters)
        # The gradients that it was filled with, and their versions.
        self._filled: list[tuple[Any, int]] = []
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
        self._filled = [(p.grad, _version(p.grad)) for p in self.parameters]
        for p, view in zip(self.parameters, self.views, strict=True):
            if p.grad is None:
                view.zero_()
            else:
                torch.mul(_dense(p.grad), weight, out=view)

    def is_current(self) -> bool:
        """Whether gradients are still those that it was filled with, as far as their versions tell."""
        return all(
            p.grad is grad and _version(grad) == version
            for p, (grad, version) in zip(self.parameters, self._filled, strict=True)
        )

    def equals_gradients(self, weight: float) -> bool:
        """The same by their values. NaN is not equal to itself, which only ends the overlap."""
        return self.is_current() and all(
            p.grad is None or torch.equal(torch.mul(_dense(p.grad), weight), view)
            for p, view in zip(self.parameters, self.views, strict=True)
        )

    def forget(self) -> None:
        """Lets go of the gradients that it was filled with."""
        self._filled = []


def _dense(gradient: Any) -> Any:
    return gradient.to_dense() if gradient.is_sparse else gradient


def _version(gradient: Any) -> int:
    return 0 if gradient is None else gradient._version


class Gradients:
    """The gradients of one model's parameters, in the same order in all members."""

    def __init__(
        self, parameters: Iterable[Any], *, usual_samples: float = 1.0, bucket_bytes: int = _BUCKET_BYTES
    ) -> None:
        """`usual_samples`: of a whole step, for all members the same. Only those of other steps are scaled twice."""
        # Also those that want none at the moment: all members have the same, whenever they have come.
        self.parameters = list(parameters)
        self._usual_samples = usual_samples
        self._buckets = [_Bucket(group) for group in _groups(self.parameters, bucket_bytes)]
        # `parameter.grad` is the sum of gradients divided by this: they are means over so many samples.
        self.unit = 0.0
        self._dirty = False
        # Overlap: the group that buckets are sent to during this backward pass, what is on its way there, and, by
        # bucket, the parameters whose gradients are not there yet.
        self._overlaps = all(p.device.type == "cpu" for p in self.parameters)
        self._trial_steps = _TRIAL_STEPS
        self._group: Group | None = None
        self._under_way: list[Reduction] = []
        self._full = 0
        self._missing: list[set[int]] = []
        self._broken: GroupBroken | None = None
        self._bucket_of = {
            id(p): number for number, bucket in enumerate(self._buckets) for p in bucket.parameters
        }
        self._hooks: dict[int, Any] = {}
        weakref.finalize(self, _remove_all, self._hooks)

    def clear(self) -> None:
        """Begins a new sum."""
        self._disarm()
        for p in self.parameters:
            p.grad = None
        self.unit = 0.0

    def expect(self, samples: float, *, group: Group | None = None) -> None:
        """The next gradient added will be the mean over so many samples.

        `group`: it is the last one of the step, so that buckets may be sent there during the backward pass.
        """
        if not (self._under_way and self._group is group):
            self._disarm()
        if self.unit and samples and samples != self.unit:
            factor = self.unit / samples
            for p in self.parameters:
                if p.grad is not None:
                    p.grad.mul_(factor)
        if samples:
            self.unit = float(samples)
        if group is not None and group.size > 1 and self._overlaps and not self._under_way:
            self._arm(group)

    def reduce(self, group: Group, numbers: Any) -> None:
        """Adds up `numbers` (whose first is this member's samples) and the gradients over all members.

        Afterwards `parameter.grad` is the mean over all samples, for the optimizer; None where no member had one.
        Raises `GroupBroken`, with the sums of this member as they were.
        """
        if self._trial_steps and self._full:
            self._end_trial_step()
        broken = self._broken
        if self._group is not group or broken is not None:
            self._disarm()
        if broken is not None:
            raise broken
        self._renew()
        early = self._buckets[: len(self._under_way)]
        for bucket in self._buckets[len(early) :]:
            self._send(bucket, group)
        stale = not all(bucket.is_current() for bucket in early)
        if stale:
            self._stop_overlapping()
        used = [float(p.grad is not None) for p in self.parameters]
        control = torch.cat([numbers, torch.tensor([*used, float(stale)], dtype=torch.float64)])
        group.sum([control])
        if control[-1]:
            self._wait(group)
            for bucket in self._buckets:
                self._send(bucket, group)
        self._wait(group)
        samples = float(control[0])
        if samples and samples != self._usual_samples:
            for bucket in self._buckets:
                bucket.flat.mul_(self._usual_samples / samples)
        self._dirty = False
        self._disarm()
        numbers.copy_(control[: len(numbers)])
        views = {
            id(p): view
            for bucket in self._buckets
            for p, view in zip(bucket.parameters, bucket.views, strict=True)
        }
        for p, count in zip(self.parameters, control[len(numbers) :].tolist(), strict=False):
            p.grad = views[id(p)] if count else None

    # -- sending ---------------------------------------------------------------------------------------------

    @property
    def _weight(self) -> float:
        return self.unit / self._usual_samples

    def _renew(self) -> None:
        """Resets the buckets before the first one is filled."""
        if self._dirty and not self._under_way:
            # The group before this one may still be reading and writing there.
            for bucket in self._buckets:
                bucket.renew()
            self._dirty = False

    def _send(self, bucket: _Bucket, group: Group) -> None:
        bucket.fill(self._weight)
        self._dirty = True
        self._under_way.append(group.start_sum([bucket.flat]))

    def _wait(self, group: Group) -> None:
        under_way, self._under_way = self._under_way, []
        for reduction in under_way:
            group.wait(reduction)

    # -- overlap ---------------------------------------------------------------------------------------------

    def _arm(self, group: Group) -> None:
        self._group = group
        for p in self.parameters:
            if p.requires_grad and id(p) not in self._hooks:
                self._hooks[id(p)] = p.register_post_accumulate_grad_hook(_Hook(self))
        self._missing = [{id(p) for p in bucket.parameters if p.requires_grad} for bucket in self._buckets]

    def _disarm(self) -> None:
        """Invalidates all-reduces that are under way."""
        self._group, self._broken = None, None
        self._under_way, self._full = [], 0
        for bucket in self._buckets:
            bucket.forget()

    def gradient_is_there(self, parameter: Any) -> None:
        """Sends the buckets that are full with it, in order."""
        if self._group is None or self._broken is not None:
            return
        self._missing[self._bucket_of[id(parameter)]].discard(id(parameter))
        while self._full < len(self._buckets) and not self._missing[self._full]:
            self._renew()
            bucket = self._buckets[self._full]
            self._full += 1
            if self._trial_steps:
                bucket.fill(self._weight)
                continue
            try:
                self._send(bucket, self._group)
            except GroupBroken as broken:
                # Not here, in the middle of the program's backward pass.
                self._broken = broken
                return

    def _end_trial_step(self) -> None:
        self._trial_steps -= 1
        if not all(bucket.equals_gradients(self._weight) for bucket in self._buckets[: self._full]):
            self._stop_overlapping()

    def _stop_overlapping(self) -> None:
        if self._overlaps:
            log.info("Gradients change after the backward pass: they are exchanged after it from now on.")
        self._overlaps = False


class _Hook:
    """A hook of a parameter, which may outlive the team."""

    def __init__(self, gradients: Gradients) -> None:
        self._gradients = weakref.ref(gradients)

    def __call__(self, parameter: Any) -> None:
        gradients = self._gradients()
        if gradients is not None:
            gradients.gradient_is_there(parameter)


def _remove_all(hooks: dict[int, Any]) -> None:
    for hook in hooks.values():
        hook.remove()


def _groups(parameters: Sequence[Any], bucket_bytes: int) -> list[list[Any]]:
    """Parameters of one kind that fit into a bucket, the last first: their gradients are ready first."""
    groups: list[list[Any]] = []
    kind, room = None, 0
    for p in reversed(parameters):
        size = p.numel() * p.element_size()
        if (p.dtype, p.device) != kind or size > room:
            groups.append([])
            kind, room = (p.dtype, p.device), bucket_bytes
        groups[-1].append(p)
        room -= size
    return groups
