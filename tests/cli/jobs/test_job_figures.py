"""`elasticdl jobs status` and `metrics` of a job with parameter servers: as lines, as a table, as JSON, as metrics."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from elasticdl.cli.output.server_table import duration, number, percent, server_lines, server_table, size
from elasticdl.jobs.json_codec import decode
from elasticdl.jobs.status import ServerReport

TOOK = {"count": 20, "seconds": 0.5, "per_second": 4.0, "p50": 0.001, "p95": 0.0021, "p99": 0.004}
SERVER: dict[str, Any] = {
    "name": "ps-0",
    "number": 0,
    "version": 46,
    "rows": 12345,
    "bytes": 6_400_000,
    "dense_bytes": 400,
    "parameters": 100,
    "pull": {**TOOK, "p95": 0.000150},
    "push": TOOK,
    "calls": {"pull_rows": TOOK, "push": TOOK},
    "rows_pulled_per_second": 4000.0,
    "rows_pushed_per_second": 3900.0,
    "hit_rate": 0.875,
    "staleness": {"mean": 1.5, "max": 4},
    "not_finite": 2,
    "rows_refused": 30,
    "tables": [
        {
            "table": "embedding",
            "rows": 12000,
            "bytes": 6_300_000,
            "pulled": 1000,
            "found": 700,
            "pushed": 750,
            "pulled_per_second": 4000.0,
            "pushed_per_second": 3900.0,
            "hit_rate": 1.0,
            "rows_refused": 30,
            "hot": [{"id": id_, "share": 0.5} for id_ in (-7, 5, 6, 8)],
        }
    ],
}


def server(document: dict[str, Any]) -> ServerReport:
    return decode(ServerReport, document)


def test_server_lines_show_server_and_tables() -> None:
    assert server_lines([server(SERVER)]) == [
        "ps-0: 12,345 rows | 6.4 MB | 4.0 pulls/s | 4.0 pushes/s | 87.5 % hits | staleness 1.5 (max 4) | "
        "p95 pull 150 µs, push 2.1 ms | 2 pushes refused: not finite | 30 rows refused: full",
        "ps-0/embedding: 12,000 rows | 6.3 MB | 100 % hits | hot ids -7 (50.0 %), 5 (50.0 %), 6 (50.0 %)",
    ]


def test_of_a_server_that_has_just_come() -> None:
    nothing = {**TOOK, "per_second": None, "p95": None}
    new = {
        **SERVER,
        "hit_rate": None,
        "staleness": {"mean": None, "max": None},
        "tables": [],
        "not_finite": 0,
    }
    new |= {"rows_refused": 0, "pull": nothing, "push": nothing}
    (line,) = server_lines([server(new)])
    assert line.endswith("– pulls/s | – pushes/s | – hits | staleness – (max –) | p95 pull –, push –")
    assert "ps-0" in shown(server_table([server(new)]))


def shown(block: RenderableType) -> str:
    console = Console(width=140, file=io.StringIO())
    with console.capture() as captured:
        console.print(block)
    return captured.get()


def test_server_table_shows_figures() -> None:
    found = shown(server_table([server(SERVER)]))
    for word in (
        "ps-0",
        "12,345",
        "6.4 MB",
        "87.5 %",
        "1.5 ≤4",
        "150 µs",
        "2.1 ms",
        "embedding",
        "-7 (50.0 %)",
    ):
        assert word in found


def test_figures_are_formatted_with_units() -> None:
    assert [size(count) for count in (0, 999, 1000, 123_456, 10**9, 5 * 10**15)] == [
        "0 B",
        "999 B",
        "1.0 kB",
        "123 kB",
        "1.0 GB",
        "5,000 TB",
    ]
    assert [percent(share) for share in (None, 0.0, 0.9995, 1.0)] == ["–", "0.0 %", "100.0 %", "100 %"]
    assert [number(value) for value in (None, 0, 1.25, 1234.5)] == ["–", "0", "1.25", "1,234"]
    assert [duration(seconds) for seconds in (0.0000015, 0.0123, 2.0)] == ["2 µs", "12.3 ms", "2.0 s"]


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The record of a job that is over."""
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path))
    folder = tmp_path / "jobs" / "clicks"
    folder.mkdir(parents=True)
    (folder / "spec.yaml").write_text("job_name: clicks\n")
    record = {"kind": "train", "created": 1.0, "ended": 2.0, "state": "succeeded", "message": ""}
    (folder / "record.json").write_text(json.dumps(record))
    status = {
        "job": "clicks",
        "kind": "train",
        "program": "definition",
        "state": "succeeded",
        "phase": "succeeded",
        "message": "",
        "epoch": 1,
        "epochs": 1,
        "samples_done": 10,
        "samples_total": 10,
        "samples_per_second": 0.0,
        "step": 1,
        "loss": None,
        "losses": [],
        "evaluations": [],
        "nodes": [],
        "targets": {"worker": 1, "ps": 1},
        "servers": [SERVER],
    }
    (folder / "status.json").write_text(json.dumps(status))
    return "clicks"


def test_status_of_finished_job_has_server_figures(elasticdl: Any, finished: str) -> None:
    shown = elasticdl("jobs", "status", finished)
    assert shown.code == 0, shown.err
    assert "ps-0: 12,345 rows" in shown.out
    assert "hot ids -7 (50.0 %)" in shown.out
    whole = json.loads(elasticdl("jobs", "status", finished, "--json").out)
    assert whole["servers"] == [SERVER]


def test_metrics_are_printed(elasticdl: Any, finished: str) -> None:
    shown = elasticdl("jobs", "metrics", finished)
    assert shown.code == 0, shown.err
    assert 'elasticdl_server_rows{job="clicks",server="ps-0"} 12345.0\n' in shown.out


def test_metrics_of_unknown_job_suggest_nearest_name(elasticdl: Any, finished: str) -> None:
    shown = elasticdl("jobs", "metrics", "click")
    assert shown.code == 2
    assert "Did you mean clicks?" in shown.err


def test_a_place_that_is_not_ours(elasticdl: Any, finished: str) -> None:
    shown = elasticdl("jobs", "metrics", finished, "--port=0", "--bind=203.0.113.1")
    assert shown.code == 2
    assert "cannot be served at 203.0.113.1:0" in shown.err
