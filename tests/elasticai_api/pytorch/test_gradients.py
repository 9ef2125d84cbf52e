"""Gradients of two members over gloo: sent during the backward pass where that is right, and the same means always."""

from __future__ import annotations

import copy
import io
import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from elasticai_api.pytorch.gradients import Gradients
from elasticai_api.pytorch.group import Group, GroupBroken, MeetingPoint, form

STEPS = 5
# Samples of the two members in a step.
SIZES = (2, 6)
# Two layers of the model fill one.
BUCKET_BYTES = 600


class Member:
    """One of two, with the same model; `after_backward` is what its program does to its gradients."""

    def __init__(self, rank: int, after_backward: Callable[[Any], None] = lambda model: None) -> None:
        torch.manual_seed(0)
        self.rank = rank
        self.model = torch.nn.Sequential(
            *(layer for _ in range(4) for layer in (torch.nn.Linear(8, 8), torch.nn.Tanh()))
        )
        self.gradients = Gradients(
            self.model.parameters(), usual_samples=sum(SIZES), bucket_bytes=BUCKET_BYTES
        )
        self.after_backward = after_backward
        # Buckets sent before the end of the backward pass, in each step.
        self.early: list[int] = []
        self._samples = torch.Generator().manual_seed(rank)

    def compute(self, group: Group, *, is_last: bool = True) -> list[Any]:
        """The gradients of one batch, as the sum of this member."""
        batch = torch.randn(SIZES[self.rank], 8, generator=self._samples)
        self.gradients.expect(len(batch), group=group if is_last else None)
        before = len(group._running)
        self.model(batch).pow(2).mean().backward()
        self.early.append(len(group._running) - before)
        self.after_backward(self.model)
        return [p.grad.clone() * self.gradients.unit for p in self.model.parameters()]

    def reduce(self, group: Group, samples: int) -> tuple[list[Any], float]:
        numbers = torch.tensor([float(samples), 1.0], dtype=torch.float64)
        self.gradients.reduce(group, numbers)
        assert float(numbers[1]) == group.size
        return [p.grad.clone() for p in self.model.parameters()], float(numbers[0])

    def step(self, group: Group, batches: int = 1) -> tuple[list[Any], list[Any]]:
        """What this member adds to the step, and the means of all."""
        added = [torch.zeros_like(p) for p in self.model.parameters()]
        for left in reversed(range(batches)):
            added = self.compute(group, is_last=left == 0)
        means, _ = self.reduce(group, batches * SIZES[self.rank])
        self.gradients.clear()
        return added, means


class Pair:
    """Two members in threads, who meet in as many rounds as they want."""

    def __init__(self, first: Member, second: Member) -> None:
        self.members = (first, second)
        self._meetings = [MeetingPoint("127.0.0.1") for _ in self.members]
        self._round = 0
        self._pool = ThreadPoolExecutor(2)

    def meet(self) -> list[Group]:
        self._round += 1

        def join(rank: int) -> Group:
            return form(
                number=self._round,
                rank=rank,
                workers=["worker-0", "worker-1"],
                address=self._meetings[0].address,
                meeting=self._meetings[rank],
                stale=lambda: False,
            )

        return list(self._pool.map(join, (0, 1)))

    def both(self, function: Callable[[Member, Group], Any], groups: list[Group]) -> list[Any]:
        return list(self._pool.map(function, self.members, groups))


def check(added: list[list[Any]], means: list[Any], samples: int) -> bool:
    return all(
        torch.allclose((one + other) / samples, mean, atol=1e-6)
        for one, other, mean in zip(*added, means, strict=True)
    )


def train(pair: Pair, batches: tuple[int, int] = (1, 1)) -> dict[str, Any]:
    groups = pair.meet()
    exact = []
    for _ in range(STEPS):
        found = pair.both(lambda member, group: member.step(group, batches[member.rank]), groups)
        added, means = zip(*found, strict=True)
        samples = sum(size * count for size, count in zip(SIZES, batches, strict=True))
        exact += [check(list(added), each, samples) for each in means]
    return {"exact": all(exact), "early": [member.early for member in pair.members]}


def clip(model: Any) -> None:
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3)


def clip_by_data(model: Any) -> None:
    for p in model.parameters():
        p.grad.data.mul_(0.5)


def compute_again(model: Any) -> None:
    model(torch.ones(1, 8)).sum().backward()


def die_during_backward() -> dict[str, Any]:
    """One dies when the other has sent a part of its gradients."""
    pair = Pair(Member(0), Member(1))
    groups = pair.meet()
    for _ in range(STEPS):
        pair.both(lambda member, group: member.step(group), groups)
    left, dead = pair.members
    groups[0].watch(lambda: True)
    added = left.compute(groups[0])
    groups[1].close()
    kept = False
    try:
        left.reduce(groups[0], SIZES[0])
    except GroupBroken:
        kept = all(
            torch.equal(p.grad * left.gradients.unit, sums)
            for p, sums in zip(left.model.parameters(), added, strict=True)
        )
    groups[0].close()
    again = pair.meet()
    dead.gradients.clear()
    others = dead.compute(again[1])
    found = pair.both(lambda member, group: member.reduce(group, SIZES[member.rank]), again)
    exact = all(check([added, others], means, sum(SIZES)) for means, _ in found)
    return {"exact": exact and kept, "early": [left.early, dead.early]}


def copy_model() -> dict[str, Any]:
    pair = Pair(Member(0), Member(1))
    train(pair)
    model = pair.members[0].model
    saved = io.BytesIO()
    torch.save(model.state_dict(), saved)
    twin = copy.deepcopy(model)
    twin(torch.ones(1, 8)).sum().backward()
    del pair.members[0].gradients
    model(torch.ones(1, 8)).sum().backward()
    same = zip(model.parameters(), twin.parameters(), strict=True)
    return {"exact": all(torch.allclose(p.grad, q.grad) for p, q in same), "early": []}


SCENARIOS: dict[str, Callable[[], dict[str, Any]]] = {
    "plain": lambda: train(Pair(Member(0), Member(1))),
    "several batches": lambda: train(Pair(Member(0), Member(1)), (3, 1)),
    "idle": lambda: train(Pair(Member(0), Member(1)), (0, 1)),
    "clipped": lambda: train(Pair(Member(0), Member(1, clip))),
    "clipped by data": lambda: train(Pair(Member(0), Member(1, clip_by_data))),
    "late change": lambda: train(Pair(Member(0), late(2, clip))),
    "second backward pass": lambda: train(Pair(Member(0), late(2, compute_again))),
    "death": die_during_backward,
    "copies": copy_model,
}


def late(steps: int, change: Callable[[Any], None]) -> Member:
    """One whose program begins to change gradients after some steps."""
    member = Member(1)
    member.after_backward = lambda model: change(model) if len(member.early) > steps else None
    return member


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    # In a process of its own: tests that fork must not find the threads of its connections.
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_gradients_are_means_over_all_samples(found: dict[str, Any], scenario: str) -> None:
    assert found[scenario]["exact"]


def test_buckets_are_sent_during_the_backward_pass(found: dict[str, Any]) -> None:
    first, second = found["plain"]["early"]
    # Not in the steps of the trial.
    assert first == second == [0, 0, 2, 2, 2]


def test_only_the_last_batch_of_a_step_overlaps(found: dict[str, Any]) -> None:
    first, _ = found["several batches"]["early"]
    assert first == [0, 0, 0] * 2 + [0, 0, 2] * 3


@pytest.mark.parametrize("scenario", ["clipped", "clipped by data"])
def test_changed_gradients_in_the_trial_end_the_overlap(found: dict[str, Any], scenario: str) -> None:
    first, second = found[scenario]["early"]
    assert first == [0, 0, 2, 2, 2]
    assert second == [0] * STEPS


@pytest.mark.parametrize("scenario", ["late change", "second backward pass"])
def test_changed_gradients_are_sent_again(found: dict[str, Any], scenario: str) -> None:
    _, second = found[scenario]["early"]
    assert second == [0, 0, 2, 0, 0]


if __name__ == "__main__":
    print(json.dumps({name: scenario() for name, scenario in SCENARIOS.items()}))
