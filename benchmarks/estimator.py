"""The Estimator programs as a job against the same programs started by hand: global steps per second.

On both sides a chief, a worker, a parameter server and an evaluator run on this machine. By hand they get a fixed
TF_CONFIG and no master: `elasticai_api` then gives each trainer all shards out of its own memory, as a list would be
read. In the job, each shard is fetched from the master and each batch reported. The figures are those that TensorFlow
itself logs in the chief, once it is under way.
"""

from __future__ import annotations

import contextlib
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from benchmarks.processes import elasticdl, finish, free_port, running
from benchmarks.report import Result, at_least
from elasticdl.data.criteo import make_criteo_like
from elasticdl.data.samples import make_iris_file

NAME = "estimator"
ROLES = ("ps", "evaluator", "worker", "chief")
_SPEED = re.compile(r"global_step/sec: ([\d.]+)")
# So that no process computes with more threads than there are cores for all of them; the same on both sides.
_ENVIRONMENT = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "2", "CUDA_VISIBLE_DEVICES": ""}


def run(*, quick: bool, repeat: int) -> list[Result]:
    results = []
    for case in ("iris", "deepfm"):
        ours: list[float] = []
        peer: list[float] = []
        for _ in range(repeat):
            with tempfile.TemporaryDirectory() as folder:
                ours.append(_job(_program(case, Path(folder), quick), Path(folder)))
            with tempfile.TemporaryDirectory() as folder:
                # Each trainer has all the data there: half as many epochs are as many steps.
                peer.append(_by_hand(_program(case, Path(folder), quick, share=2), Path(folder)))
        result = Result(
            benchmark=NAME,
            case=case,
            unit="global steps/s",
            us=statistics.median(ours),
            peer=statistics.median(peer),
        )
        results.append(at_least(result, 0.97))
    return results


def _program(case: str, folder: Path, quick: bool, share: int = 1) -> list[str]:
    """The words of the command. The data is made anew for each run, for checkpoints are kept beside it."""
    command = [sys.executable, "-m"]
    if case == "iris":
        make_iris_file(folder / "iris.data")
        epochs = 60 if quick else 600
        command += ["model_zoo.iris.dnn_estimator", f"--training_data={folder}/iris.data"]
    else:
        make_criteo_like(folder / "criteo", rows=2000, test_rows=200)
        epochs = 8 if quick else 40
        command += [
            "model_zoo.deepctr.deepfm_estimator",
            f"--training_data={folder}/criteo/train",
            f"--validation_data={folder}/criteo/test",
        ]
    return [*command, f"--num_epochs={epochs // share}", "--checkpoint_steps=1000", "--evaluation_seconds=30"]


def _job(program: list[str], folder: Path) -> float:
    command = elasticdl(
        "train",
        f"--job_command={' '.join(program)}",
        "--need_tf_config=true",
        "--distribution_strategy=ParameterServerStrategy",
        "--num_ps=1",
        "--num_workers=1",
        "--num_evaluator=1",
        "--job_name=benchmark",
    )
    with running(command, log=folder / "log", environment=_environment(folder)) as process:
        finish(process, folder / "log")
    return _speed(folder / "jobs" / "benchmark" / "logs" / "chief-0.log")


def _by_hand(program: list[str], folder: Path) -> float:
    cluster = {role: [f"127.0.0.1:{free_port()}"] for role in ("chief", "worker", "ps")}
    with contextlib.ExitStack() as stack:
        processes = {}
        for role in ROLES:
            place = {"cluster": cluster, "task": {"type": role, "index": 0}}
            environment = {**_environment(folder), "TF_CONFIG": json.dumps(place)}
            log = folder / f"{role}.log"
            processes[role] = stack.enter_context(running(program, log=log, environment=environment))
        for role in ("chief", "worker"):
            finish(processes[role], folder / f"{role}.log")
    return _speed(folder / "chief.log")


def _environment(folder: Path) -> Mapping[str, str]:
    return {**_ENVIRONMENT, "ELASTICDL_HOME": str(folder)}


def _speed(log: Path) -> float:
    """Without the first fifth, in which not everybody trains yet, and the last, in which not everybody does still."""
    speeds = [float(figure) for figure in _SPEED.findall(log.read_text(errors="replace"))]
    part = len(speeds) // 5
    # Each line stands for as many steps, so times are what adds up.
    return statistics.harmonic_mean(speeds[part : len(speeds) - part])
