"""Reports: figures, pages, pictures, tables."""

from __future__ import annotations

import csv
import io
import math
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from elasticdl.errors import UserError
from elasticdl.simulator.report.charts import charts_of
from elasticdl.simulator.report.drawing import to_standalone_svg, to_svg, write_png
from elasticdl.simulator.report.page import main_charts, render_page, write_page
from elasticdl.simulator.report.tables import print_table, write_csv
from elasticdl.simulator.run_result import JobResult, RunResult, jain_index, percentile
from elasticdl.simulator.workload import CPU, Service
from tests.simulator.builders import job, run


@pytest.fixture(scope="module")
def results() -> list[RunResult]:
    jobs = [job("a<b", high=4, work=200), job("b", at=20, high=6, work=300), job("huge", low=99, high=99)]
    service = Service(name="web", requests={CPU: 1000}, targets=((0.0, 1), (30.0, 2)))
    return [run(jobs, policy, services=(service,), horizon=200.0) for policy in ("elasticdl", "fifo")]


def test_jain_index_is_one_for_equals_and_a_share_for_one() -> None:
    assert jain_index([3, 3, 3]) == pytest.approx(1.0)
    assert jain_index([1, 0, 0, 0]) == pytest.approx(0.25)
    assert jain_index([]) == 1.0


def test_percentile_interpolates() -> None:
    assert percentile([0.0, 10.0], 99.0) == pytest.approx(9.9)
    assert percentile([5.0], 99.0) == 5.0


def test_summary_of_known_jobs_is_exact() -> None:
    def done(name: str, start: float, end: float) -> JobResult:
        return JobResult(
            name=name, submitted_at=0.0, requested=1, started_at=start, first_instance_at=start, completed_at=end,
            done_share=1.0, isolated_seconds=end - start, fair_seconds=10.0, resizes=2,
        )  # fmt: skip

    result = RunResult(
        policy="p",
        workload="w",
        resource=CPU,
        end=100.0,
        jobs=[done("a", 0, 20), done("b", 10, 40)],
        samples=[],
        plan_seconds=[0.001, 0.003],
    )
    summary = result.summary()
    assert (summary.mean_completion, summary.median_completion) == (30, 30)
    assert summary.p99_completion == pytest.approx(39.8)
    assert (summary.mean_waiting, summary.resizes_per_job) == (5, 2)
    assert summary.finish_fairness_mean == pytest.approx(3.0)
    assert summary.finish_fairness_max == pytest.approx(4.0)
    assert summary.goodput == pytest.approx((20 + 30) / 100)
    assert summary.plan_milliseconds_mean == pytest.approx(2.0)


def test_average_weighs_samples_by_time(results: list[RunResult]) -> None:
    whole = results[0].average("utilisation")
    halves = [results[0].average("utilisation", start=a, end=a + 100.0) for a in (0.0, 100.0)]
    assert whole == pytest.approx(sum(halves) / 2)


def test_page_is_complete_and_loads_nothing(results: list[RunResult], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_page(results, path)
    text = path.read_text()

    found: list[str] = []

    class Links(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag not in ("script", "link", "img", "iframe")
            found.extend([value or "" for name, value in attrs if name in ("src", "href")])

    Links().feed(text)
    assert found == []
    assert "url(" not in text
    assert "prefers-color-scheme: dark" in text
    assert "elasticdl" in text
    assert "fifo" in text
    assert "a&lt;b" in text
    assert "a<b" not in text
    assert "larger than the cluster" in text


def test_charts_are_valid_svg(results: list[RunResult]) -> None:
    drawings = charts_of(results)
    assert len(drawings) == 6
    for drawing in drawings:
        assert ElementTree.fromstring(to_svg(drawing)).tag.endswith("svg")
        assert ElementTree.fromstring(to_standalone_svg(drawing)).tag.endswith("svg")


def test_chart_coordinates_are_finite_and_inside(results: list[RunResult]) -> None:
    for drawing in main_charts(results):
        for shape in drawing.shapes:
            for x, y in getattr(shape, "points", [(getattr(shape, "x", 0.0), getattr(shape, "y", 0.0))]):
                assert math.isfinite(x)
                assert math.isfinite(y)
                assert -1 <= x <= drawing.width + 1
                assert -1 <= y <= drawing.height + 1


def test_png_shows_all_charts(results: list[RunResult], tmp_path: Path) -> None:
    path = tmp_path / "report.png"
    drawings = main_charts(results)
    write_png(drawings, path, scale=1)
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert image.size == (860, int(sum(drawing.height for drawing in drawings)))
        assert len(image.convert("RGB").getcolors(maxcolors=1 << 20) or ()) > 20


def test_csv_has_one_line_per_job_and_policy(results: list[RunResult], tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    write_csv(results, path)
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["policy"], row["job"]) for row in rows] == [
        (policy, name) for policy in ("elasticdl", "fifo") for name in ("a<b", "huge", "b")
    ]
    assert rows[0]["completed"]
    assert rows[1]["rejected"].startswith("larger than the cluster")


def test_table_in_a_pipe_is_one_line_per_policy(results: list[RunResult]) -> None:
    stream = io.StringIO()
    print_table([result.summary() for result in results], stream=stream)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("test elasticdl: done=")


def test_page_in_a_missing_folder_is_an_error(results: list[RunResult], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"):
        write_page(results, tmp_path / "absent" / "report.html")


def test_page_without_completed_jobs_has_no_completion_chart() -> None:
    endless = run([job("a", work=math.inf)], "fifo", horizon=50.0)
    assert "Mean completion time" not in render_page([endless])
