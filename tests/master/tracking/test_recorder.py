"""The queue between a master and an experiment tracker: bounded, retried, and never silent about a loss."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from elasticdl.master.tracking.recorder import Recorder
from elasticdl.master.tracking.tracker import Point, Run, RunEnd, TrackerError

RUN = Run(name="job", key="k", params={}, tags={})
END = RunEnd(state="succeeded", tags={})


@dataclass
class Notebook:
    """A tracker in memory, away while `error` is set."""

    name: str = "notebook"
    error: Exception | None = None
    points: list[Point] = field(default_factory=list)
    opened: int = 0
    ended: str = ""

    def _answer(self) -> None:
        if self.error is not None:
            raise self.error

    def open(self, run: Run) -> str:
        self._answer()
        self.opened += 1
        return "page 1"

    def record(self, points: Sequence[Point]) -> None:
        self._answer()
        self.points += points

    def close(self, end: RunEnd) -> None:
        self._answer()
        self.ended = end.state


@pytest.fixture
def notebook() -> Notebook:
    return Notebook()


def messages(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    """What the recorder logged. Threads of earlier tests may log as well."""
    own = [record for record in caplog.records if "notebook" in record.getMessage()]
    return [record.getMessage() for record in own if record.levelno >= level]


def steps(notebook: Notebook) -> list[int]:
    return [point.step for point in notebook.points]


def test_points_are_sent_in_order_and_end_comes_last(notebook: Notebook) -> None:
    recorder = Recorder(notebook, RUN, now=lambda: 5.0)
    for step in range(600):
        recorder.scalars(step, {"loss": 1.0})
    recorder.end(END)
    requests = 0
    while not notebook.ended:
        assert recorder.advance() == 0
        requests += 1
    assert steps(notebook) == list(range(600))
    assert {point.time for point in notebook.points} == {5.0}
    # Opened, three requests with points, and the end.
    assert (requests, notebook.ended) == (5, "succeeded")
    assert recorder.report() == ("notebook: page 1",)


def test_absent_tracker_is_retried_with_backoff_and_warned_about_once(
    notebook: Notebook, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    notebook.error = TrackerError("connection refused")
    recorder = Recorder(notebook, RUN)
    recorder.scalars(1, {"loss": 1.0})
    assert [recorder.advance() for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    notebook.error = None
    while not notebook.points:
        assert recorder.advance() == 0
    assert steps(notebook) == [1]
    assert messages(caplog, logging.INFO) == [
        "Recording to notebook fails and is retried: connection refused",
        "Recording to notebook: page 1",
        "Recording to notebook again, after 7 errors",
    ]


def test_point_whose_request_failed_is_sent_again_unchanged(notebook: Notebook) -> None:
    times = iter([1.0, 2.0])
    recorder = Recorder(notebook, RUN, now=lambda: next(times))
    recorder.advance()
    recorder.scalars(1, {"loss": 1.0})
    notebook.error = TrackerError("timeout")
    assert recorder.advance() > 0
    recorder.scalars(2, {"loss": 2.0})
    notebook.error = None
    recorder.advance()
    recorder.advance()
    assert [(point.step, point.time) for point in notebook.points] == [(1, 1.0), (2, 2.0)]


def test_full_queue_drops_oldest_points_and_counts_them(notebook: Notebook) -> None:
    recorder = Recorder(notebook, RUN, capacity=3)
    for step in range(5):
        recorder.scalars(step, {"loss": 1.0})
    recorder.advance()
    recorder.advance()
    assert steps(notebook) == [2, 3, 4]
    assert recorder.report()[1:] == ("notebook: 2 metric batches were not recorded",)


def test_rejected_points_are_dropped_and_later_ones_recorded(
    notebook: Notebook, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(notebook, RUN)
    recorder.advance()
    notebook.error = TrackerError("bad name", is_permanent=True)
    for step in (1, 2):
        recorder.scalars(step, {"loss": 1.0})
        assert recorder.advance() == 0
    notebook.error = None
    recorder.scalars(3, {"loss": 1.0})
    recorder.advance()
    assert steps(notebook) == [3]
    assert recorder.report()[1:] == ("notebook: 2 metric batches were not recorded: bad name",)
    assert messages(caplog, logging.WARNING) == ["Dropping metric batches: notebook rejects them: bad name"]


def test_unknown_error_of_client_is_retried(notebook: Notebook) -> None:
    notebook.error = ZeroDivisionError("a defect")
    recorder = Recorder(notebook, RUN)
    assert recorder.advance() > 0
    notebook.error = None
    recorder.advance()
    assert notebook.opened == 1


def test_end_with_absent_tracker_reports_what_is_missing(
    notebook: Notebook, caplog: pytest.LogCaptureFixture
) -> None:
    notebook.error = TrackerError("connection refused")
    recorder = Recorder(notebook, RUN)
    recorder.start()
    for step in range(3):
        recorder.scalars(step, {"loss": 1.0})
    recorder.end(END)
    recorder.wait(0)
    lines = (
        "notebook: 3 metric batches were not recorded: connection refused",
        "notebook: the end of the job was not recorded: connection refused",
    )
    assert recorder.report() == lines
    assert set(lines) <= {record.getMessage() for record in caplog.records}


def test_thread_records_everything_before_wait_returns(notebook: Notebook) -> None:
    recorder = Recorder(notebook, RUN)
    recorder.start()
    for step in range(1000):
        recorder.scalars(step, {"loss": 1.0})
    recorder.end(END)
    recorder.wait(60)
    assert steps(notebook) == list(range(1000))
    assert notebook.ended == "succeeded"


def test_end_cuts_a_long_backoff_short(notebook: Notebook) -> None:
    notebook.error = TrackerError("connection refused")
    recorder = Recorder(notebook, RUN)
    for _ in range(10):
        recorder.advance()
    recorder.end(END)
    assert recorder.advance() <= 1
