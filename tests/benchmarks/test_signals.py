"""A benchmark that is killed by a signal leaves nothing running."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
# Measures something that never ends.
PROGRAM = """
import sys, types
from pathlib import Path
from benchmarks import __main__ as benchmarks
from benchmarks.processes import running

def run(*, quick, repeat):
    with running(["sleep", "infinity"], log=log) as process:
        print(process.pid, flush=True)
        process.wait()

endless = sys.modules["benchmarks.endless"] = types.ModuleType("benchmarks.endless")
endless.run = run
benchmarks.NAMES += ("endless",)
benchmarks.compileall.compile_dir = lambda *words, **options: None
log, sys.argv[1:] = Path(sys.argv[1]), ["endless"]
sys.exit(benchmarks.main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_terminated_benchmark_ends_its_processes(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as benchmark:
        assert benchmark.stdout is not None
        started = psutil.Process(int(benchmark.stdout.readline()))
        benchmark.send_signal(number)
        assert benchmark.wait(timeout=60) == 128 + number
    assert not started.is_running()
