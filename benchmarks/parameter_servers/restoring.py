"""The time of a server's start with 10⁷ rows, and their sums of squares, from a checkpoint on disk.

From the start of its process until it has replied to a pull of rows. The checkpoint has just been written, so most of
it is in the page cache, as after a server's death during a job.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.our_server import TABLE, connect
from benchmarks.processes import ROOT, running, wait_until
from benchmarks.report import Result, at_most_more

_SECONDS = 10.0
_PROGRAM = [sys.executable, "-m", "benchmarks.parameter_servers.our_server"]


def measure(benchmark: str, sizes: clicks.Sizes, *, rounds: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        saved = home / "table.edl"
        subprocess.run([*_PROGRAM, f"--make={saved}", f"--rows={sizes.ids}"], check=True, cwd=ROOT)
        found = [_start(home / f"{number}", saved, sizes.ids) for number in range(rounds)]
        size = saved.stat().st_size
    result = Result(
        benchmark=benchmark,
        case=f"server start with {sizes.ids:,} rows restored",
        unit="s",
        us=statistics.median(seconds for seconds, _ in found),
        note=f"a checkpoint of {size / 1e9:.2f} GB, from the start of the process to the first rows pulled; "
        f"processor time {statistics.median(work for _, work in found):.2g} s",
    )
    return at_most_more(result, _SECONDS)


def _start(home: Path, saved: Path, rows: int) -> tuple[float, float]:
    """Returns wall time and processor time in seconds."""
    home.mkdir()
    address = home / "address"
    began = time.monotonic()
    command = [*_PROGRAM, f"--restore={saved}", f"--address={address}"]
    with running(command, log=home / "log") as process:
        wait_until(address.exists, "a restored server serves")
        client = connect(address.read_text(), worker="worker-0", rule="adagrad")
        ids = np.array([0, rows - 1], np.int64)
        pulled = client.pull_rows({TABLE.name: ids})[TABLE.name]
        seconds, times = time.monotonic() - began, psutil.Process(process.pid).cpu_times()
        assert np.abs(pulled).max() > 0
        client.close()
    return seconds, times.user + times.system
