"""Whole jobs as a user starts them: `elasticdl train ...` in a process of its own, watched and killed from here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from elasticdl.catalog.local.master_client import current_status
from elasticdl.errors import UserError
from elasticdl.jobs.job_store import JobStore

# The shell that started the tests may have interrupts and hang-ups ignored, which the jobs started here would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# Tests compute beside their jobs, and programs on pages compute by themselves. More threads than processors wait for
# each other in busy loops.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent

# Processes of jobs import less with a framework: see e2e/startup/sitecustomize.py.
STARTUP = str(ROOT / "e2e" / "startup")
_IMPORTED_FROM = os.environ.get("PYTHONPATH", "").split(os.pathsep)
if STARTUP not in _IMPORTED_FROM:
    os.environ["PYTHONPATH"] = os.pathsep.join([STARTUP, *filter(None, _IMPORTED_FROM)])

# Long enough for a loaded machine; nothing is asserted about time, this only ends what hangs.
DEADLINE = 400.0


# A test that waits several times waits longer than once; so does one of several jobs.
TEST_DEADLINE = 900.0


# Their tests take longest. They come first, so that none of them is at work alone in the end.
_LONGEST = [Path(__file__).parent / name for name in ("test_estimator_jobs.py", "test_docs.py")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path not in _LONGEST)
    for item in items:
        if Path(__file__).parent in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_DEADLINE))


def wait_until(condition: Callable[..., Any], what: str) -> Any:
    """Looks often at first, and then less and less, so as not to slow down the processes that are waited for.

    The condition is called without arguments; those that are made in a loop have defaults for what they hold on to.
    """
    end, pause = time.monotonic() + DEADLINE, 0.01
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(pause)
        pause = min(1.1 * pause, 0.2)
    raise AssertionError(f"did not happen: {what}")


class Job:
    """A running `elasticdl` command and the processes of its job."""

    def __init__(
        self, home: Path, arguments: list[str], environment: dict[str, str], *, prefix: tuple[str, ...] = ()
    ) -> None:
        """`prefix`: a command that starts the command given to it, in the same process (`exec`)."""
        self.name = next(a.split("=", 1)[1] for a in reversed(arguments) if a.startswith("--job_name="))
        self.folder = home / "jobs" / self.name
        self._environment = {**os.environ, "ELASTICDL_HOME": str(home), **environment}
        self._output = home / f"{self.name}.out"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "elasticdl.cli.main", *arguments],
                cwd=ROOT,
                env=self._environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        return self._output.read_text()

    def status(self) -> dict[str, Any]:
        """What `elasticdl jobs status` prints. Tests ask again and again, so no process is started for it, unless it
        needs an environment of its own.
        """
        if "ELASTICDL_CA_FILE" in self._environment:
            return dict(json.loads(self.command("jobs", "status", self.name, "--json").stdout))
        try:
            return current_status(JobStore(self.folder.parent.parent).get(self.name)).to_json()
        except UserError:
            return {}

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "elasticdl.cli.main", *arguments],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
        )

    def processes(self) -> dict[str, psutil.Process]:
        """The job's processes by node name, the master's included."""
        found = {}
        for process in psutil.process_iter():
            try:
                environment = process.environ()
                command = process.cmdline()
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
            if str(self.folder) == environment.get("ELASTICDL_JOB_DIR") and "elasticdl.master" in command:
                found["master"] = process
            elif environment.get("ELASTICDL_TOKEN_FILE") == str(self.folder / "token"):
                node = environment.get("ELASTICDL_NODE", "")
                if node and f"elasticdl.{node.rsplit('-', 1)[0]}" in command:
                    found[node] = process
        return found

    def kill(self, node: str) -> psutil.Process:
        process = wait_until(lambda: self.processes().get(node), f"{node} runs")
        process.send_signal(signal.SIGKILL)
        assert isinstance(process, psutil.Process)
        return process

    def wait(self) -> int:
        try:
            return self.process.wait(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the job does not end:\n{self.output}\n{self.logs()}") from None

    def logs(self) -> str:
        logs = self.folder / "logs"
        return "\n".join(f"== {p.name}\n{p.read_text()[-4000:]}" for p in sorted(logs.glob("*.log")))

    def audit(self) -> dict[str, Any]:
        document = json.loads((self.folder / "status.json").read_text())
        return dict(document["audit"])

    def assert_exact(self, *, epochs: int, size: int) -> None:
        """The job succeeded and every sample of every epoch was done."""
        code = self.wait()
        assert code == 0, f"exit code {code}\n{self.output}\n{self.logs()}"
        audit = self.audit()
        assert audit["exact"], audit["reason"]
        training = [row for row in audit["rows"] if row["dataset"] == "training"]
        assert [row["done"] for row in training] == [size] * epochs
        self.assert_nothing_left()

    def assert_nothing_left(self) -> None:
        wait_until(lambda: not self.processes(), "all processes of the job are gone")


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "digits"
    command = [sys.executable, "-m", "elasticdl.cli.main", "data", "make", "digits", f"--output={folder}"]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


class Gates:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hold(self, point: str) -> None:
        (self.folder / f"hold-{point}").touch()

    def release(self, point: str) -> None:
        (self.folder / f"hold-{point}").unlink(missing_ok=True)

    def wait_for_held(self, point: str, node: str = "*") -> None:
        """Until a process is held at the point by a hold that has just been set."""
        for path in self.folder.glob(f"held-{point}-{node}"):
            path.unlink()
        wait_until(lambda: list(self.folder.glob(f"held-{point}-{node}")), f"{node} is held at {point}")

    def passed(self, point: str) -> list[Path]:
        """A file for each process that has come to the point."""
        return list(self.folder.glob(f"passed-{point}-*"))

    def wait_for(self, point: str, count: int = 1) -> list[int]:
        """Until so many processes have come to the point. Returns their ids."""
        pids = wait_until(
            lambda: len(found := self.passed(point)) >= count and found, f"{count} processes reach {point}"
        )
        return [int(path.name.rsplit("-", 1)[1]) for path in pids]


@pytest.fixture
def gates(tmp_path: Path) -> Gates:
    folder = tmp_path / "gates"
    folder.mkdir()
    return Gates(folder)


@pytest.fixture
def start_job(tmp_path: Path, gates: Gates) -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def start(*arguments: str, environment: dict[str, str] | None = None) -> Job:
        names = {
            **{"ELASTICDL_TEST_GATES": str(gates.folder), "ELASTICDL_THREADS": "1"},
            **(environment or {}),
        }
        job = Job(tmp_path / "home", [*arguments], names)
        jobs.append(job)
        return job

    (tmp_path / "home").mkdir()
    yield start
    for job in jobs:
        if job.process.poll() is None:
            job.process.kill()
            job.process.wait()


def gated_arguments(digits: Path) -> list[str]:
    """The job of most failure tests: digits, two workers, one parameter server, with points to stop at."""
    return [
        "train",
        "--model_zoo=e2e/zoo",
        "--model_def=gated.model.custom_model",
        f"--training_data={digits}/train",
        f"--validation_data={digits}/test",
        "--job_name=gated",
        "--minibatch_size=32",
        "--num_minibatches_per_task=4",
        "--num_epochs=2",
        "--num_workers=2",
        "--num_ps=1",
        # Who is held for long here does not hang.
        "--stall_factor=0",
    ]


@pytest.fixture
def start_gated(start_job: Callable[..., Job], digits: Path) -> Callable[..., Job]:
    def start(*arguments: str, **more: Any) -> Job:
        return start_job(*gated_arguments(digits), *arguments, **more)

    return start


@dataclass(frozen=True, kw_only=True)
class Finished:
    job: Job
    model: Path
    metrics: dict[str, float]


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory, digits: Path) -> Finished:
    """A job that has come to its end, after one epoch with two workers, for the tests that look at it afterwards."""
    folder = tmp_path_factory.mktemp("finished")
    gates = Gates(folder / "gates")
    gates.folder.mkdir()
    # No worker trains alone.
    gates.hold("train")
    environment = {"ELASTICDL_TEST_GATES": str(gates.folder), "ELASTICDL_THREADS": "1"}
    arguments = [*gated_arguments(digits), "--num_epochs=1", f"--output={folder}/model"]
    job = Job(folder, arguments, environment)
    gates.wait_for("train", 2)
    gates.release("train")
    job.assert_exact(epochs=1, size=1437)
    return Finished(job=job, model=folder / "model", metrics=job.status()["evaluations"][-1]["metrics"])


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    """A definition to break and a command to run: see `e2e/plain.py`."""
    from e2e.plain import Bench

    return Bench(folder=tmp_path)


@pytest.fixture(scope="session")
def plain_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of the unbroken definition of `e2e/plain.py`."""
    from e2e.plain import Bench

    bench = Bench(folder=tmp_path_factory.mktemp("plain"))
    checkpoint = bench.folder / "checkpoints"
    bench.train(f"--checkpoint_dir={checkpoint}").succeeded("Exact: every sample")
    return checkpoint
