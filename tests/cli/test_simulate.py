"""`elasticdl simulate`: what a person types, and what they see."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

JOBS = "name,submit,min,max,work,cpu\na,0,1,8,400,2\nb,20,2,16,900,2\n"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return path


def test_policies_are_compared_line_by_line(elasticdl: Any, jobs: Path) -> None:
    result = elasticdl(
        "simulate", str(jobs), "--nodes", "2x8cpu", "--policy", "elasticdl", "--policy", "fifo"
    )
    assert result.code == 0, result.err
    lines = result.out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["jobs elasticdl", "jobs fifo"]
    assert "done=2/2" in lines[0]


def test_reports_are_written(elasticdl: Any, jobs: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / f"report.{name}" for name in ("html", "png", "csv")}
    flags = [f"--{name}={path}" for name, path in files.items()]
    result = elasticdl("simulate", str(jobs), "--nodes=2x8cpu", *flags)
    assert result.code == 0, result.err
    assert files["html"].read_text().startswith("<!doctype html>")
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    assert len(files["csv"].read_text().splitlines()) == 3
    assert all(str(path) in result.out for path in files.values())


def test_same_seed_prints_the_same(elasticdl: Any) -> None:
    def figures(text: str) -> str:
        # The time of a plan is real time.
        return text.partition(", plan=")[0]

    first = elasticdl("simulate", "edl-case2", "--policy=edl", "--seed=3")
    second = elasticdl("simulate", "edl-case2", "--policy=edl", "--seed=3")
    other = elasticdl("simulate", "edl-case2", "--policy=edl", "--seed=4")
    assert figures(first.out) == figures(second.out) != figures(other.out)


def test_dashes_mean_underscores(elasticdl: Any, jobs: Path) -> None:
    result = elasticdl(
        "simulate", str(jobs), "--nodes=2x8cpu", "--policy=fifo", "--resize-cost=0", "--load=2"
    )
    assert result.code == 0, result.err


def test_job_larger_than_the_cluster_is_reported(elasticdl: Any, tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS + "huge,0,99,99,10,8\n")
    result = elasticdl("simulate", str(path), "--nodes=2x8cpu")
    assert result.code == 0
    assert "done=2/3" in result.out
    assert "huge is rejected: larger than the cluster" in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.csv"], "There is no file, folder or scenario nothing.csv"),
        (["two-jobs", "--policy=fito"], "Did you mean fifo"),
        (["two-jobs", "--interval=0"], "--interval must be a finite number greater than zero"),
        (["two-jobs", "--resize_cost=-1"], "--resize_cost must be a finite number at least zero"),
        (["two-jobs", "--load=nan"], "--load must be a finite number"),
        (["two-jobs", "--nodes=0x4gpu"], "is an empty cluster"),
        (["two-jobs", "--polcy=fifo"], "No such option"),
    ],
)
def test_bad_input_is_an_error_in_words(elasticdl: Any, words: list[str], message: str) -> None:
    result = elasticdl("simulate", *words)
    assert result.code == 2
    assert message in result.err


def test_file_without_machines_asks_for_them(elasticdl: Any, jobs: Path) -> None:
    result = elasticdl("simulate", str(jobs))
    assert result.code == 2
    assert "--nodes" in result.err
