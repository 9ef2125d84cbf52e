"""Records the pictures of the dashboard: real jobs, one of which loses a worker and is scaled, seen in a real browser.

    python -m tools.record_dashboard        # writes docs/images/dashboard-*.png

Nothing is drawn. The jobs are those of the model zoo on small data, in a home folder of their own. The cluster is the
API server of the tests, with the machines and TrainingJobs that `_describe_cluster` puts there.

Failure modes
    A job ends before its picture is taken, or a page has an error: `RuntimeError` or `AssertionError`, and no
    picture is written.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, ViewportSize

from e2e.browser import DashboardProcess, Viewer, chromium
from elasticdl.catalog.local.master_client import current_status
from elasticdl.catalog.local.process_ids import node_process_ids
from elasticdl.errors import UserError
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.status import JobStatus
from elasticdl.jobs.training_job.status import format_time
from tests.catalog.api_server import ApiServer
from tests.dashboard.test_cluster_page import put_node, put_pod, put_training_job

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
_WIDE: ViewportSize = {"width": 1240, "height": 860}
_PHONE: ViewportSize = {"width": 390, "height": 844}
_TIMEOUT_SECONDS = 600.0
_DIGITS = (
    "--model_zoo=model_zoo",
    "--model_def=digits.torch_cnn.custom_model",
    "--training_data=data/digits/train",
    "--validation_data=data/digits/test",
    "--evaluation_steps=200",
)


class Jobs:
    """Jobs of one home folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.home = folder / ".elasticdl"
        self.home.mkdir()
        self._environment = {
            **os.environ,
            "ELASTICDL_HOME": str(self.home),
            "KUBECONFIG": str(folder / "no-cluster"),
            "ELASTICDL_THREADS": "1",
            # The commands of this tree, wherever the package is installed from.
            "PYTHONPATH": str(ROOT),
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def command(self, *words: str) -> None:
        self._start(*words).wait()

    def start(self, *words: str) -> None:
        self._running.append(self._start(*words))

    def status(self, name: str) -> JobStatus:
        try:
            return current_status(JobStore(self.home).get(name))
        except UserError:
            return JobStatus()

    def kill(self, name: str, node: str) -> None:
        os.kill(node_process_ids(JobStore(self.home).get(name))[node], 9)

    def end(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait()

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "elasticdl.cli.main", *words],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def record(folder: Path) -> dict[str, bytes]:
    """Runs the jobs and returns the pictures by the name of their file."""
    (folder / "model_zoo").symlink_to(ROOT / "model_zoo")
    jobs = Jobs(folder)
    dashboard = DashboardProcess(jobs.home)
    api = ApiServer()
    try:
        jobs.command("data", "make", "digits", "--output=data/digits")
        jobs.command("train", "--job_name=baseline", *_DIGITS, "--num_workers=1", "--num_epochs=8")
        jobs.command("train", "--job_name=broken", *_DIGITS, "--minibatch_size=64", "--loss=missing")
        jobs.start(
            "train", "--job_name=survivor", *_DIGITS, "--num_workers=2", "--num_ps=2", "--num_epochs=4000"
        )
        _wait(lambda: jobs.status("survivor").samples_done > 20_000, "the job trains")
        jobs.kill("survivor", "worker-0")
        _wait(lambda: jobs.status("survivor").samples_done > 50_000, "the job trains on")
        jobs.command("jobs", "scale", "survivor", "--num_workers=3")
        _wait(lambda: jobs.status("survivor").ready_nodes("worker") == 3, "the job has grown")
        _wait(lambda: jobs.status("survivor").samples_done > 90_000, "the larger job trains")
        api.kubeconfig(dashboard.kubeconfig)
        _describe_cluster(api)
        dashboard.start()
        with chromium() as browser:
            return _pictures(browser, dashboard)
    finally:
        dashboard.stop()
        api.close()
        jobs.end()


def _describe_cluster(api: ApiServer) -> None:
    """Twelve machines of eight cores, one of them cordoned; two jobs that run and one that waits."""
    now = format_time(time.time() - 90)
    sizes = {"clicks": 3, "images": 2, "speech": 1}
    for machine in range(12):
        put_node(api, f"node-{machine}", unschedulable=machine == 9)
        for job, size in sizes.items():
            for number in range(min(size, 1) if machine == 7 else size):
                put_pod(api, f"{job}-{machine}-{number}", node=f"node-{machine}", job=job)
        put_pod(api, f"web-{machine}", node=f"node-{machine}", cpu="500m")

    def decided(name: str, kind: str, before: int, after: int, sentence: str) -> None:
        decision = {"time": now, "kind": kind, "sentence": sentence, "from": before, "to": after}
        put_training_job(api, name, {"phase": "Running", "decisions": [decision]})

    decided("clicks", "Shrink", 40, 34, "Shrinks from 40 to 34: makes room for job lab/speech.")
    decided("speech", "Admit", 0, 12, "Starts with 12 of 12 to 24: all role groups fit.")
    put_training_job(
        api,
        "maps",
        {
            "phase": "Pending",
            "message": "Waits: its minimum does not fit.",
            "conditions": [{"type": "Admitted", "status": "False"}],
            "trainer": {"min": 4, "max": 8},
        },
    )


def _pictures(browser: Browser, dashboard: DashboardProcess) -> dict[str, bytes]:
    survivor = f"{dashboard.address}/#/job/-/survivor"

    def take(
        path: str, *, waits_for: str, phone: bool = False, dark: bool = False, whole: bool = False
    ) -> bytes:
        context = browser.new_context(
            viewport=_PHONE if phone else _WIDE,
            color_scheme="dark" if dark else "light",
            device_scale_factor=1.5 if phone else 1,
        )
        viewer = Viewer(context.new_page())
        viewer.page.goto(dashboard.link())
        viewer.page.locator("h1").wait_for()
        viewer.page.goto(path)
        viewer.page.locator(waits_for).first.wait_for()
        # Charts are drawn in the next frames.
        viewer.page.evaluate("new Promise((done) => setTimeout(done, 1000))")
        assert viewer.problems == [], viewer.problems
        picture = viewer.page.screenshot(full_page=whole)
        context.close()
        return _smaller(picture)

    return {
        "dashboard-jobs.png": take(f"{dashboard.address}/#/jobs", waits_for=".job-row"),
        "dashboard-job.png": take(survivor, waits_for=".chart canvas", whole=True),
        "dashboard-nodes.png": take(f"{survivor}/nodes", waits_for=".timeline canvas", dark=True),
        "dashboard-logs.png": take(f"{survivor}/logs", waits_for=".log .line"),
        "dashboard-cluster.png": take(
            f"{dashboard.address}/#/cluster", waits_for=".cards .chart canvas", whole=True
        ),
        "dashboard-phone.png": take(survivor, waits_for=".chart canvas", phone=True, dark=True),
    }


def _smaller(picture: bytes) -> bytes:
    """Returns the picture with 128 colours: a third of the size."""
    out = io.BytesIO()
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    image.quantize(128, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def _wait(is_reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not is_reached():
        if time.monotonic() > deadline:
            raise RuntimeError(f"It did not happen that {what}.")
        time.sleep(0.2)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        pictures = record(Path(folder))
    for name, picture in pictures.items():
        (IMAGES / name).write_bytes(picture)
        print(f"docs/images/{name}: {len(picture) // 1024} KiB")


if __name__ == "__main__":
    main()
