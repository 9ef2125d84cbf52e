"""The cost of the dashboard: the time until a page is shown, and the processor time of a master that is watched.

The pages are opened in Debian's Chromium (`make e2e-programs`). A job trains digits with two workers and two parameter
servers. Its master's processor time is compared between periods in which four viewers follow the job and the list, and
periods without viewers.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.processes import ROOT, running, wait_until
from benchmarks.report import Result
from e2e.browser import DashboardProcess, chromium
from elasticdl.catalog.local.master_client import current_status
from elasticdl.catalog.local.process_ids import node_process_ids
from elasticdl.errors import UserError
from elasticdl.jobs.job_store import JobStore
from tests.dashboard.client import Client
from tests.dashboard.stored_jobs import store_job

NAME = "dashboard"
_JOB = "watched"
_PAINT_SECONDS = 1.0
# Of a core; less is noise.
_MASTER_SHARE = 0.01
_VIEWERS = 3


def run(*, quick: bool, repeat: int) -> list[Result]:
    turns = 1 if quick else repeat
    results = []
    for jobs in (100, 1_000):
        paint, listed = _page_times(jobs, turns)
        is_target = jobs == 100
        results += [
            Result(
                benchmark=NAME,
                case=f"{jobs:,} jobs, first paint",
                unit="s",
                us=paint,
                target=f"< {_PAINT_SECONDS:g} s" if is_target else "",
                passed=paint < _PAINT_SECONDS if is_target else None,
            ),
            Result(benchmark=NAME, case=f"{jobs:,} jobs, rows are shown", unit="s", us=listed),
        ]
    watched, alone = _master_shares(turns, seconds=2.0 if quick else 10.0)
    results.append(
        Result(
            benchmark=NAME,
            case=f"the master's share of a core, {_VIEWERS + 1} viewers",
            unit="%",
            us=100 * watched,
            peer=100 * alone,
            target=f"< {100 * _MASTER_SHARE:g} % more",
            passed=watched - alone < _MASTER_SHARE,
            note="beside it: without viewers",
        )
    )
    return results


def _page_times(jobs: int, turns: int) -> tuple[float, float]:
    """Seconds from the request for the page to its first paint, and to a hundred rows; medians."""
    paints, rows = [], []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        home.mkdir()
        for number in range(jobs):
            store_job(home, f"job-{number:04d}", age=60.0 * number)
        server = DashboardProcess(home)
        server.start()
        try:
            with chromium() as browser:
                for _ in range(turns):
                    context = browser.new_context()
                    page = context.new_page()
                    began = time.perf_counter()
                    page.goto(server.link())
                    page.locator(".job-row").nth(99).wait_for()
                    rows.append(time.perf_counter() - began)
                    entry = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
                    paints.append(float(page.evaluate(entry)) / 1000)
                    context.close()
        finally:
            server.stop()
    return statistics.median(paints), statistics.median(rows)


def _master_shares(turns: int, *, seconds: float) -> tuple[float, float]:
    """The master's processor time per second, with viewers and without, in turns; medians."""
    watched, alone = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = folder / "home"
        home.mkdir()
        server = DashboardProcess(home)
        environment = {
            "ELASTICDL_HOME": str(home),
            "KUBECONFIG": str(folder / "none"),
            "ELASTICDL_THREADS": "1",
        }
        command = [sys.executable, "-m", "elasticdl"]
        data = [*command, "data", "make", "digits", f"--output={folder / 'digits'}"]
        with running(data, log=folder / "data.log", environment=environment) as making:
            making.wait()
        train = [
            *command,
            "train",
            f"--job_name={_JOB}",
            f"--model_zoo={ROOT / 'model_zoo'}",
            "--model_def=digits.torch_cnn.custom_model",
            f"--training_data={folder / 'digits' / 'train'}",
            "--num_workers=2",
            "--num_ps=2",
            "--num_epochs=100000",
        ]
        with running(train, log=folder / "job.log", environment=environment):
            wait_until(lambda: _trains(home), "the job trains")
            master = psutil.Process(node_process_ids(JobStore(home).get(_JOB))["master"])
            server.start()
            try:
                for _ in range(turns):
                    alone.append(_share(master, seconds))
                    with _viewers(Client(server.link())):
                        watched.append(_share(master, seconds))
            finally:
                server.stop()
    return statistics.median(watched), statistics.median(alone)


def _trains(home: Path) -> bool:
    try:
        return current_status(JobStore(home).get(_JOB)).samples_done > 5_000
    except UserError:
        return False


def _share(process: psutil.Process, seconds: float) -> float:
    before, began = sum(process.cpu_times()[:2]), time.perf_counter()
    time.sleep(seconds)
    return float(sum(process.cpu_times()[:2]) - before) / (time.perf_counter() - began)


@contextlib.contextmanager
def _viewers(client: Client) -> Iterator[None]:
    """Follows the page of the job and the list of jobs."""
    over = threading.Event()
    paths = [f"/api/jobs/{_JOB}/stream"] * _VIEWERS + ["/api/stream"]

    def follow(path: str) -> None:
        for _ in client.stream(path):
            if over.is_set():
                return

    threads = [threading.Thread(target=follow, args=(path,), daemon=True) for path in paths]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(timeout=10)
