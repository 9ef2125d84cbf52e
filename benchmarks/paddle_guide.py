"""Paddle's Kubernetes guide on one machine: a job of three nodes against the same fleet program started by hand.

Each node has one server and one trainer. By hand that is six processes, all started at once, whose PADDLE_* variables
have the same addresses. Both sides train the same number of batches, in turns.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import fleet_program
from benchmarks.parameter_servers import progress
from benchmarks.parameter_servers.missing import Missing, need_paddle
from benchmarks.processes import ROOT, elasticdl, finish, running
from benchmarks.report import Result, at_least, at_most_more
from elasticdl.worker.environment import select_mkl_kernels

NAME = "paddle_guide"
NODES = 3
# Of a node: its server, its trainer, gloo of trainer 0.
_PORTS = 3
_HOSTS = [f"127.0.0.{number + 1}" for number in range(NODES)]
_PROGRAM = """from paddle.distributed import fleet  # noqa: F401 - shows that this is a program, not a configuration

from benchmarks.fleet_program import main

main()
"""


@dataclass(frozen=True, kw_only=True)
class Run:
    per_second: float
    # From the start to the end of the first batch of the last trainer.
    first_batch_seconds: float


def run(*, quick: bool, repeat: int) -> list[Result]:
    try:
        need_paddle()
    except Missing as missing:
        note = f"not measured: {missing}"
        return [Result(benchmark=NAME, case="three nodes", unit="samples/s", us=0.0, note=note)]
    batches = 20 if quick else 200
    ours: list[Run] = []
    peer: list[Run] = []
    for number in range(repeat):
        for side, found in (
            ((_job, ours), (_by_hand, peer)) if number % 2 else ((_by_hand, peer), (_job, ours))
        ):
            found.append(side(batches))
    speeds = Result(
        benchmark=NAME,
        case="three nodes, once under way",
        unit="samples/s",
        us=statistics.median(each.per_second for each in ours),
        peer=statistics.median(each.per_second for each in peer),
    )
    first = Result(
        benchmark=NAME,
        case="three nodes, from the start to the first batch",
        unit="s",
        us=statistics.median(each.first_batch_seconds for each in ours),
        peer=statistics.median(each.first_batch_seconds for each in peer),
    )
    return [at_least(speeds, 0.97), at_most_more(first, 5.0)]


def _job(batches: int) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        config = home / "job" / "config"
        config.mkdir(parents=True)
        (config / "train.py").write_text(_PROGRAM)
        for number in range(NODES):
            (home / "job" / str(number) / "data").mkdir(parents=True)
        command = elasticdl(
            "paddle",
            "run",
            f"--nodes={NODES}",
            f"--job_path={home}",
            "--job_name=job",
            "--train_config_dir=config",
            f"--port={_free_ports()}",
            "--ports_num=1",
            "--ports_num_for_sparse=0",
            "--restarts=0",
        )
        environment = _environment(home, batches)
        started = time.monotonic()
        with running(command, log=home / "log", environment=environment) as process:
            finish(process, home / "log")
        return _read(home, started)


def _by_hand(batches: int) -> Run:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        (home / "train.py").write_text(_PROGRAM)
        port = _free_ports()
        common = {
            **_environment(home, batches),
            "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(f"{host}:{port}" for host in _HOSTS),
            "PADDLE_TRAINER_ENDPOINTS": ",".join(f"{host}:{port + 1}" for host in _HOSTS),
            "PADDLE_TRAINERS_NUM": str(NODES),
            "PADDLE_WITH_GLOO": "1",
            "PADDLE_GLOO_RENDEZVOUS": "3",
            "PADDLE_GLOO_HTTP_ENDPOINT": f"{_HOSTS[0]}:{port + 2}",
        }
        trainers = []
        started = time.monotonic()
        for role, offset in (("PSERVER", 0), ("TRAINER", 1)):
            for number, host in enumerate(_HOSTS):
                log = home / f"{role}-{number}.log"
                environment = {
                    **common,
                    "TRAINING_ROLE": role,
                    "POD_IP": host,
                    "PADDLE_PORT": str(port + offset),
                    "PADDLE_TRAINER_ID": str(number),
                }
                command = [sys.executable, "-u", str(home / "train.py")]
                # Gloo's server leaves a file where it is started.
                process = stack.enter_context(running(command, log=log, environment=environment, cwd=home))
                if role == "TRAINER":
                    trainers.append((process, log))
        for process, log in trainers:
            finish(process, log)
        return _read(home, started)


def _environment(home: Path, batches: int) -> dict[str, str]:
    folder = home / "progress"
    folder.mkdir()
    # Those that our trainers select, on both sides.
    kernels: dict[str, str] = {}
    select_mkl_kernels(kernels)
    return {
        **kernels,
        progress.FOLDER: str(folder),
        fleet_program.BATCHES: str(batches),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }


def _read(home: Path, started: float) -> Run:
    trainers = [progress.read(home / "progress" / f"worker-{number}") for number in range(NODES)]
    return Run(
        per_second=sum(
            fleet_program.BATCH * (len(each) - 1) / (each[-1].seconds - each[0].seconds) for each in trainers
        ),
        first_batch_seconds=max(each[0].seconds for each in trainers) - started,
    )


def _free_ports() -> int:
    """The first of as many as a node needs, free at the moment on all addresses."""
    for first in range(31000, 40000, _PORTS):
        try:
            for host in _HOSTS:
                for port in range(first, first + _PORTS):
                    with socket.socket() as probe:
                        probe.bind((host, port))
        except OSError:
            continue
        return first
    raise RuntimeError("there are no free ports")
