"""The Estimator programs as a job against the same programs started by hand: global steps per second.

On both sides a chief, a worker, a parameter server and an evaluator run on this machine, with the same variables. By
hand they get a fixed TF_CONFIG and no master: `elasticai_api` then gives each trainer all shards from its own memory,
as if it read a list. In the job, shards are fetched from the master and batches are reported.

Both sides are started. When the chief and the worker of each have trained for a while, one side is suspended (SIGSTOP)
while the steps of the other are timed, in turns. So both sides meet the same state of the machine, and none is timed
while it starts or after its peer has finished. Checkpoints and evaluations are outside of that time: they cost both
sides the same, at different moments. Steps are counted in the log of the chief.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks.processes import Stuck, elasticdl, free_port, running, tail
from benchmarks.report import Result
from benchmarks.turns import Side, Speed, compared, ended, take_turns
from elasticdl.data.generators.bundled import make_iris_file
from elasticdl.data.generators.criteo import make_criteo_like

NAME = "estimator"
TARGET = 0.97
ROLES = ("ps", "evaluator", "worker", "chief")
_STEP = re.compile(rb"step = (\d+)")
# Limits the threads of all processes together to the number of cores.
_ENVIRONMENT = {
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "2",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONUNBUFFERED": "1",
}
# More than can be trained during the measurement.
_EPOCHS = 1_000_000
_UNDER_WAY = 300
# Warm-up after a suspension, until buffers are filled again.
_WARM_SECONDS = 2.0


class Steps:
    """The steps in the log of a trainer."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._read = 0
        self._last = 0

    def last(self) -> int:
        if self.log.exists():
            with self.log.open("rb") as file:
                file.seek(self._read)
                # The last line may be incomplete.
                text = file.read().rpartition(b"\n")[0]
            self._read += len(text)
            found = _STEP.findall(text)
            self._last = int(found[-1]) if found else self._last
        return self._last


class Estimator(Side):
    def __init__(self, roots: list[psutil.Process], *, chief: Path, worker: Path) -> None:
        super().__init__(roots)
        self._trainers = (Steps(chief), Steps(worker))

    def under_way(self) -> bool:
        return all(steps.last() >= _UNDER_WAY for steps in self._trainers)

    def last_output(self) -> str:
        return "\n".join(tail(steps.log) for steps in self._trainers if steps.log.exists())

    def speed(self, seconds: float) -> Speed:
        """Steps between the first and the last line about steps that the chief writes in that time."""
        self.go_on()
        time.sleep(_WARM_SECONDS)
        end = time.monotonic() + seconds
        chief = self._trainers[0]
        seen = chief.last()
        points: list[tuple[float, int, float]] = []
        while time.monotonic() < end or len(points) < 2:
            if (step := chief.last()) > seen:
                seen = step
                points.append((time.monotonic(), step, self.work()))
            if time.monotonic() > end + 60.0:
                raise Stuck(f"there are no steps:\n{tail(chief.log)}")
            time.sleep(0.02)
        self.halt()
        (began, first, work_before), (ended, last, work) = points[0], points[-1]
        return Speed(
            per_second=(last - first) / (ended - began),
            work=(work - work_before) / (last - first),
        )


def run(*, quick: bool, repeat: int) -> list[Result]:
    return [_measure(case, rounds=repeat, seconds=2.0 if quick else 5.0) for case in ("iris", "deepfm")]


def _measure(case: str, *, rounds: int, seconds: float) -> Result:
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as ours,
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as theirs,
        _job(case, Path(ours)) as job,
        _by_hand(case, Path(theirs)) as by_hand,
    ):
        speeds = take_turns([job, by_hand], lambda side: side.speed(seconds), rounds=rounds)
    return compared(
        speeds[job],
        speeds[by_hand],
        benchmark=NAME,
        case=case,
        unit="global steps/s",
        at_least=TARGET,
        work_of="step",
    )


def _program(case: str, folder: Path) -> list[str]:
    """The arguments of the command. Each side has its own data, because checkpoints are stored beside it."""
    command = [sys.executable, "-m"]
    if case == "iris":
        make_iris_file(folder / "iris.data")
        command += ["model_zoo.iris.dnn_estimator", f"--training_data={folder}/iris.data"]
    else:
        make_criteo_like(folder / "criteo", rows=2000, test_rows=200)
        command += [
            "model_zoo.deepctr.deepfm_estimator",
            f"--training_data={folder}/criteo/train",
            f"--validation_data={folder}/criteo/test",
        ]
    return [*command, f"--num_epochs={_EPOCHS}", "--checkpoint_steps=1000000", "--evaluation_seconds=3600"]


@contextlib.contextmanager
def _job(case: str, folder: Path) -> Iterator[Estimator]:
    command = elasticdl(
        "train",
        f"--job_command={' '.join(_program(case, folder))}",
        "--need_tf_config=true",
        "--distribution_strategy=ParameterServerStrategy",
        "--num_ps=1",
        "--num_workers=1",
        "--num_evaluator=1",
        "--job_name=benchmark",
    )
    logs = folder / "jobs" / "benchmark" / "logs"
    environment = {**_ENVIRONMENT, "ELASTICDL_HOME": str(folder)}
    with running(command, log=folder / "log", environment=environment) as process:
        side = Estimator(
            [psutil.Process(process.pid)], chief=logs / "chief-0.log", worker=logs / "worker-0.log"
        )
        with ended(side):
            yield side


@contextlib.contextmanager
def _by_hand(case: str, folder: Path) -> Iterator[Estimator]:
    cluster = {role: [f"127.0.0.1:{free_port()}"] for role in ("chief", "worker", "ps")}
    command = _program(case, folder)
    with contextlib.ExitStack() as stack:
        processes = []
        for role in ROLES:
            place = {"cluster": cluster, "task": {"type": role, "index": 0}}
            environment = {**_ENVIRONMENT, "TF_CONFIG": json.dumps(place)}
            process = running(command, log=folder / f"{role}.log", environment=environment)
            processes.append(psutil.Process(stack.enter_context(process).pid))
        side = Estimator(processes, chief=folder / "chief.log", worker=folder / "worker.log")
        yield stack.enter_context(ended(side))
