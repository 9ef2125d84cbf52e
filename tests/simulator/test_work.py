"""How jobs advance: measured programs by the published rules, others by their amount of work."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from elasticdl.simulator.traces import read_program
from elasticdl.simulator.work import LinearWork, TracedProgress, TracedWork, goodput, split_batch
from tests.simulator.small_traces import write_traces


@pytest.fixture
def work(tmp_path: Path) -> TracedWork:
    return TracedWork(program=read_program(write_traces(tmp_path / "traces") / "fast"), batch=32)


def test_progress_per_second_is_gain_over_update_time(work: TracedWork) -> None:
    # Two replicas of 16, batch 32, scale 4; the gradient's variance is 10 in the first epoch.
    gain = (10 + 1) / (10 / 4 + 1)
    assert goodput(work.program, (2,), 16, 0, 0) == pytest.approx(gain / 0.26)


def test_accumulation_repeats_only_the_computation(work: TracedWork) -> None:
    gain = (10 + 1) / (10 / 16 + 1)
    assert goodput(work.program, (1, 1), 16, 3, 0) == pytest.approx(gain / (0.26 + 0.05 + 3 * 0.26))


@pytest.mark.parametrize(
    ("batch", "replicas", "expected"),
    [
        (32, 2, (16, 0)),
        (128, 2, (16, 3)),
        (8, 1, (8, 0)),
        (12, 1, (6, 1)),
        (128, 5, (12, 1)),
        (128, 32, (4, 0)),
    ],
)
def test_batch_is_split_over_replicas_and_accumulation(
    work: TracedWork, batch: int, replicas: int, expected: tuple[int, int]
) -> None:
    assert split_batch(work.program, batch, replicas) == expected


def test_traced_job_is_done_after_its_last_epoch(work: TracedWork) -> None:
    progress = work.start(chooser=None)
    progress.resize((2,))
    seconds = 0.0
    done = None
    while done is None:
        done = progress.advance(60)
        seconds += 60 if done is None else done
    expected = sum(round(100 / goodput(work.program, (2,), 16, 0, epoch)) for epoch in range(3))
    assert seconds == pytest.approx(expected, abs=3)
    assert progress.done_share() == 1.0


def test_traced_job_reports_only_what_it_has_run_with(work: TracedWork) -> None:
    progress = work.start(chooser=None)
    assert not progress.observations
    progress.resize((2,))
    progress.advance(10)
    assert [(seen.machines, seen.replicas) for seen in progress.observations] == [(1, 2)]
    assert progress.reported().epochs_total == 3
    assert progress.reported().work_total is None


def test_batch_chooser_is_asked_at_every_epoch_and_interval(work: TracedWork) -> None:
    asked: list[tuple[int, int]] = []

    def choose(job: TracedProgress, machines: int, replicas: int) -> tuple[int, int]:
        asked.append((machines, replicas))
        return 8, 0

    progress = work.start(chooser=choose)
    progress.resize((1, 1))
    progress.advance(1)
    assert asked == [(2, 2), (2, 2)]


def test_linear_work_is_done_by_its_speed() -> None:
    progress = LinearWork(seconds=100, overhead=0.5).start(chooser=None)
    progress.resize((2, 1))
    assert progress.seconds_left() == pytest.approx(100 / (3 / 2))
    assert progress.advance(60) is None
    assert progress.done_share() == pytest.approx(0.9)
    assert progress.advance(60) == pytest.approx(10 / 1.5)


def test_linear_work_without_workers_does_not_advance() -> None:
    progress = LinearWork(seconds=100).start(chooser=None)
    assert progress.advance(1000) is None
    assert progress.seconds_left() is None


def test_endless_work_has_no_end() -> None:
    progress = LinearWork(seconds=math.inf).start(chooser=None)
    progress.resize((4,))
    assert progress.advance(1e6) is None
    assert progress.seconds_left() is None
    assert progress.reported().work_total is None
