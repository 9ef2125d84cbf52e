"""The live display of a job on a terminal: its nodes, and of parameter servers how they do."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest
from rich.console import Console

from elasticdl.cli.output.display import make_display
from elasticdl.cli.output.node_rows import node_state
from elasticdl.cli.output.panel import panel
from elasticdl.cli.output.progress_text import one_line
from elasticdl.jobs.json_codec import decode
from elasticdl.jobs.status import JobStatus, NodeReport


def node(name: str, *, shards: int = 0, **changes: Any) -> dict[str, Any]:
    fields = {"phase": "running", "joined": True}
    return {"name": name, "role": name.split("-")[0], "shards": shards, **fields, **changes}


def server(name: str, *, rows: int, pushes: float | None) -> dict[str, Any]:
    """As much of what a master tells of one as is asked for."""
    took = {"per_second": pushes, "p95": None if pushes is None else 0.0021}
    return {"name": name, "rows": rows, "push": took, "pull": {**took, "p95": 0.00015}}


STATUS: dict[str, Any] = {
    "job": "clicks",
    "state": "running",
    "phase": "training",
    "epoch": 0,
    "epochs": 2,
    "samples_done": 500,
    "samples_total": 1000,
    "samples_per_second": 100.0,
    "seconds_left": 5.0,
    "step": 50,
    "loss": None,
    "losses": [],
    "evaluations": [],
    "nodes": [
        node("ps-0"),
        node("ps-1", phase="failed", reason="killed"),
        node("ps-2"),
        node("worker-0", shards=1),
    ],
    "targets": {"worker": 1, "ps": 2},
}
SERVERS = [server("ps-0", rows=12_345, pushes=431.0), server("ps-2", rows=0, pushes=None)]


def lines(status: dict[str, Any], **options: Any) -> list[str]:
    console = Console(width=100, file=io.StringIO())
    with console.capture() as captured:
        console.print(panel(JobStatus.from_json(status), **options))
    return [line.strip("│ \n") for line in captured.get().splitlines()]


def words(shown: list[str], name: str) -> list[str]:
    (line,) = [line for line in shown if line.startswith(name)]
    return line.split()


def test_servers_are_shown_with_their_figures() -> None:
    shown = lines({**STATUS, "servers": SERVERS})
    assert words(shown, "node") == [
        "node",
        "state",
        "shards",
        "rows",
        "pushes/s",
        "pull",
        "p95",
        "push",
        "p95",
    ]
    assert words(shown, "ps-0") == ["ps-0", "working", "12,345", "431.0", "150", "µs", "2.1", "ms"]
    assert "ended: ps-1 (killed)" in shown
    assert words(shown, "ps-2") == ["ps-2", "working", "0", "–", "150", "µs", "–"]
    assert words(shown, "worker-0") == ["worker-0", "working", "1"]


def test_without_figures() -> None:
    """The servers have not reported yet, or the job has none; or all of it is shown elsewhere."""
    for shown in (lines(STATUS), lines({**STATUS, "servers": SERVERS}, figures=False)):
        assert words(shown, "node") == ["node", "state", "shards"]
        assert words(shown, "ps-0") == ["ps-0", "working"]


@pytest.mark.parametrize(
    ("report", "state"),
    [
        ({"joined": False}, "starting"),
        (
            {"joined": False, "unresponsive_since_seconds": 86_400.0 * 365},
            "starting, unresponsive since 1971-01-01 00:00:00",
        ),
        ({"unresponsive_since_seconds": 86_400 * 365 + 61.5}, "unresponsive since 1971-01-01 00:01:01"),
        ({"unresponsive_since_seconds": None}, "working"),
        ({"draining": True}, "leaving"),
        ({"draining": True, "reason": "killed"}, "ended: killed"),
    ],
)
def test_state_of_a_running_node(monkeypatch: pytest.MonkeyPatch, report: dict[str, Any], state: str) -> None:
    monkeypatch.setattr("time.localtime", time.gmtime)
    assert node_state(decode(NodeReport, node("ps-0", **report))) == state


def test_large_figures_have_room() -> None:
    many = [server(f"ps-{number}", rows=12_345_678_901, pushes=123_456.7) for number in range(3)]
    waits = node(
        "ps-1", phase="pending", joined=False, message="no machine has so much memory free as it needs"
    )
    shown = lines({**STATUS, "nodes": [node("ps-0"), waits], "servers": many})
    assert words(shown, "ps-0")[2:4] == ["12,345,678,901", "123,456.7"]
    assert words(shown, "ps-1")[:2] == ["ps-1", "waits:"]
    assert max(map(len, shown)) <= 100


def test_plain_lines_are_as_they_were() -> None:
    assert one_line(JobStatus.from_json({**STATUS, "servers": SERVERS})) == (
        "training | epoch 1/2 | 500/1,000 samples | 100/s | step 50 | 1 of 1 workers | 0:05 left"
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_remarks_on_the_model_are_shown_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    display = make_display(quiet=False)
    remark = "Moved to the parameter servers: a [b]."
    late = "Not moved to the parameter servers: c."
    for remarks in ([], [remark], [remark]):
        display.progressed(JobStatus.from_json({**STATUS, "remarks": remarks}))
    shown = capsys.readouterr().out
    assert shown.count(remark) == 1
    display.ended(JobStatus.from_json({**STATUS, "state": "succeeded", "remarks": [remark, late]}), "logs")
    shown = capsys.readouterr().out
    assert remark not in shown
    assert shown.count(late) == 1


def test_worker_that_failed_is_shown_with_its_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Its shard is tried again: without this the error would be in a log only, if the next worker succeeds."""
    failed = node(
        "worker-0",
        phase="failed",
        reason="error",
        message="exit code 1; last output: RuntimeError: no such label",
    )
    display = make_display(quiet=False)
    display.progressed(JobStatus.from_json({**STATUS, "nodes": [failed, node("worker-1")]}))
    assert "worker-0: ended: error (RuntimeError: no such label)\n" in capsys.readouterr().out
