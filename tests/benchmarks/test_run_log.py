"""Results are saved as they are found, and the newest figure of each case is taken from the history."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.performance.run_log import RunLog, newest
from benchmarks.report import Result

ROOT = Path(__file__).parents[2]
# Finds one result, and then measures something that never ends.
PROGRAM = """
import sys, threading, types
from benchmarks import __main__ as benchmarks
from benchmarks.report import Result

def run(*, quick, repeat):
    yield Result(benchmark="endless", case="first", unit="s", us=1.0)
    print("waiting", flush=True)
    threading.Event().wait()

endless = sys.modules["benchmarks.endless"] = types.ModuleType("benchmarks.endless")
endless.run = run
benchmarks.NAMES += ("endless",)
benchmarks.compileall.compile_dir = lambda *words, **options: None
sys.argv[1:] = ["endless", f"--json={sys.argv[1]}"]
sys.exit(benchmarks.main())
"""
RESULT = Result(benchmark="b", case="c", unit="s", us=2.0, peer=1.0)


def test_interrupted_run_keeps_its_results(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    command = [sys.executable, "-c", PROGRAM, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as benchmark:
        assert benchmark.stdout is not None
        lines = [benchmark.stdout.readline(), benchmark.stdout.readline()]
        benchmark.send_signal(signal.SIGKILL)
    assert lines == ["endless | first | 1 s\n", "waiting\n"]
    saved = json.loads(path.read_text())
    assert [result["case"] for result in saved["results"]] == ["first"]
    assert not saved["is_complete"]


def test_benchmark_that_comes_to_nothing_keeps_no_other_from_being_measured(tmp_path: Path) -> None:
    program = PROGRAM.replace('print("waiting", flush=True)', 'raise benchmarks.Stuck("it hangs")').replace(
        '["endless", ', '["endless", "endless", '
    )
    path = tmp_path / "results.json"
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1
    saved = json.loads(path.read_text())
    assert [(result["case"], result["passed"]) for result in saved["results"]] == [
        ("first", None),
        ("the rest", False),
    ] * 2
    assert saved["is_complete"]


def test_folder_gets_a_file_for_each_run_and_newest_figure_counts(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    first = RunLog(folder, quick=False, repeat=1)
    first.add(RESULT)
    first.add(replace(RESULT, case="other"))
    (only,) = folder.glob("*.json")
    later = {**json.loads(only.read_text()), "started": "9999-01-01T00:00:00Z"}
    later["results"] = [{**later["results"][0], "us": 3.0}]
    (folder / "later.json").write_text(json.dumps(later))
    found = newest(folder)
    assert {case: measured.result.us for (_, case), measured in found.items()} == {"c": 3.0, "other": 2.0}


def test_short_runs_are_no_figures(tmp_path: Path) -> None:
    log = RunLog(tmp_path, quick=True, repeat=1)
    log.add(RESULT)
    log.complete()
    assert newest(tmp_path) == {}
