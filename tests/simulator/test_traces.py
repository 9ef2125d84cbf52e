"""Measured programs: what is read, what is interpolated, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.simulator.traces import TracedProgram, TraceFolder, read_program
from tests.simulator.small_traces import write_traces


@pytest.fixture
def fast(tmp_path: Path) -> TracedProgram:
    return read_program(write_traces(tmp_path / "traces") / "fast")


def test_measured_placement_returns_its_times(fast: TracedProgram) -> None:
    assert fast.step_time((1, 1), 8) == pytest.approx((0.18 + 0.05, 0.05))


def test_local_batch_between_two_is_interpolated(fast: TracedProgram) -> None:
    assert fast.step_time((4,), 12) == pytest.approx((0.22, 0.0))


def test_rotations_of_a_placement_are_the_same(fast: TracedProgram) -> None:
    assert fast.step_time((2, 1), 8) == fast.step_time((1, 2), 8) == pytest.approx((0.23, 0.05))


def test_placement_without_measurement_is_interpolated_over_machines_and_replicas(
    fast: TracedProgram,
) -> None:
    # Between 4 machines of 16 and 8 machines of 32 replicas.
    assert fast.step_time((4,) * 6, 8) == pytest.approx((0.18 + 0.25, 0.25))


def test_local_batch_beyond_the_measured_ones_takes_the_last(fast: TracedProgram) -> None:
    assert fast.step_time((1,), 100) == fast.step_time((1,), 16)


def test_gradient_between_two_batch_sizes_is_interpolated(tmp_path: Path) -> None:
    folder = write_traces(tmp_path / "traces") / "fast"
    (folder / "validation-32.csv").write_text(
        "progress,iteration,metric,grad_sqr,grad_var\n100,26,0,3,30\n200,51,0,3,30\n300,76,0,3,30\n"
    )
    assert read_program(folder).gradient(20, 0) == pytest.approx((2.0, 20.0))


def test_limits_come_from_the_files(fast: TracedProgram) -> None:
    assert (fast.init_batch, fast.max_batch, fast.min_local_batch, fast.max_local_batch) == (8, 128, 4, 16)
    assert fast.epochs == 3
    assert fast.progress_after(2) == 200.0


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "placements.csv",
            "placement,local_bsz,step_time,sync_time\n1,4,nan,0\n",
            "line 2: step_time must be a finite",
        ),
        (
            "placements.csv",
            "placement,local_bsz,step_time,sync_time\n1,4,-1,0\n",
            "line 2: step_time must be greater",
        ),
        (
            "placements.csv",
            "placement,local_bsz,step_time,sync_time\n1,4,x,0\n",
            "line 2: step_time must be a number",
        ),
        (
            "placements.csv",
            "placement,local_bsz,step_time,sync_time\n10,4,1,0\n",
            "line 2: placement must be digits",
        ),
        ("placements.csv", "placement,local_bsz,step_time\n1,4,1\n", "no column sync_time"),
        ("placements.csv", "placement,local_bsz,step_time,sync_time\n", "has no measurements"),
        ("validation-8.csv", "progress,iteration,metric,grad_sqr,grad_var\n", "has no epochs"),
        (
            "validation-8.csv",
            "progress,iteration,metric,grad_sqr,grad_var\n9,1,0,1,1\n8,2,0,1,1\n",
            "line 3: progress must grow",
        ),
        ("validation-x.csv", "progress,iteration,metric,grad_sqr,grad_var\n", "must end in a batch size"),
        ("validation-².csv", "progress,iteration,metric,grad_sqr,grad_var\n", "must end in a batch size"),
    ],
)
def test_broken_file_is_named_with_its_line(tmp_path: Path, file: str, text: str, message: str) -> None:
    folder = write_traces(tmp_path / "traces") / "fast"
    (folder / file).write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_program(folder)
    assert file in str(error.value)


def test_unknown_program_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown program 'fats'\. Did you mean fast"):
        TraceFolder(write_traces(tmp_path / "traces")).program("fats")


def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no folder"):
        TraceFolder(tmp_path / "absent")
