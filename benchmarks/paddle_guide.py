"""Paddle's Kubernetes guide on one machine: a job of three nodes against the same fleet program started by hand.

Each node has one server and one trainer. By hand these are six processes, all started at once, whose PADDLE_* variables
have the same addresses. Both sides train the same number of batches, in turns. `paddle_cluster` does the same with
pods.
"""

from __future__ import annotations

import contextlib
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import fleet_program
from benchmarks.parameter_servers import progress
from benchmarks.parameter_servers.missing import Missing, need_paddle
from benchmarks.processes import ROOT, elasticdl, finish, running
from benchmarks.report import Result
from elasticdl.worker.environment import select_mkl_kernels

NAME = "paddle_guide"
NODES = 3
PROGRAM = """from paddle.distributed import fleet  # noqa: F401 - shows that this is a program, not a configuration

from benchmarks.fleet_program import main

main()
"""
# Of a node: its server, its trainer, gloo of trainer 0.
_PORTS = 3
_HOSTS = [f"127.0.0.{number + 1}" for number in range(NODES)]
_LEAST_RATIO = 0.97
_MOST_SECONDS_MORE = 5.0


@dataclass(frozen=True, kw_only=True)
class Run:
    per_second: float
    # Until the end of the first batch of the last trainer.
    first_batch_seconds: float

    def __str__(self) -> str:
        return f"{self.per_second:,.0f} samples/s, first batch after {self.first_batch_seconds:.2f} s"


def run(*, quick: bool, repeat: int) -> list[Result]:
    try:
        need_paddle()
    except Missing as missing:
        note = f"not measured: {missing}"
        return [Result(benchmark=NAME, case="three nodes", unit="samples/s", us=0.0, note=note)]
    ours, peer = take_turns(_job, _by_hand, batches=20 if quick else 200, repeat=repeat)
    return compared(ours, peer, benchmark=NAME, what="three nodes", since="from the start")


def take_turns(
    job: Callable[[int], Run], by_hand: Callable[[int], Run], *, batches: int, repeat: int
) -> tuple[list[Run], list[Run]]:
    """The results of both sides, in the order of the turns, with so many batches each."""
    ours: list[Run] = []
    peer: list[Run] = []
    for number in range(repeat):
        sides = ((job, ours), (by_hand, peer))
        for side, found in sides if number % 2 else reversed(sides):
            found.append(side(batches))
        print(f"turn {number + 1}: {ours[-1]}, by hand {peer[-1]}", file=sys.stderr, flush=True)
    return ours, peer


def compared(
    ours: Sequence[Run], peer: Sequence[Run], *, benchmark: str, what: str, since: str, note: str = ""
) -> list[Result]:
    """Returns the median of the turns' ratios, and of their differences."""
    turns = list(zip(ours, peer, strict=True))
    ratios = [us.per_second / other.per_second for us, other in turns]
    more = [us.first_batch_seconds - other.first_batch_seconds for us, other in turns]
    ratio, later = statistics.median(ratios), statistics.median(more)
    note = note and f"; {note}"
    return [
        Result(
            benchmark=benchmark,
            case=f"{what}, once under way",
            unit="samples/s",
            us=statistics.median(each.per_second for each in ours),
            peer=statistics.median(each.per_second for each in peer),
            compared=f"{ratio:.3g}×",
            target=f"≥ {_LEAST_RATIO:g}×",
            passed=ratio >= _LEAST_RATIO,
            note=f"of the turns: {', '.join(f'{each:.2f}×' for each in ratios)}{note}",
        ),
        Result(
            benchmark=benchmark,
            case=f"{what}, {since} to the first batch",
            unit="s",
            us=statistics.median(each.first_batch_seconds for each in ours),
            peer=statistics.median(each.first_batch_seconds for each in peer),
            compared=f"{later:+.3g} s",
            target=f"≤ {_MOST_SECONDS_MORE:+g} s",
            passed=later <= _MOST_SECONDS_MORE,
            note=f"of the turns: {', '.join(f'{each:+.2f} s' for each in more)}{note}",
        ),
    ]


def _job(batches: int) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        make_job_folder(home / "job")
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
        return read(home / "progress", started)


def make_job_folder(folder: Path) -> None:
    """Creates what the data job would create, with the program as the configuration."""
    config = folder / "config"
    config.mkdir(parents=True)
    (config / "train.py").write_text(PROGRAM)
    for number in range(NODES):
        (folder / str(number) / "data").mkdir(parents=True)


def _by_hand(batches: int) -> Run:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        (home / "train.py").write_text(PROGRAM)
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
        return read(home / "progress", started)


def _environment(home: Path, batches: int) -> dict[str, str]:
    folder = home / "progress"
    folder.mkdir()
    python_path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return program_variables(progress_folder=folder, batches=batches, python_path=python_path)


def program_variables(*, progress_folder: Path, batches: int, python_path: str) -> dict[str, str]:
    """The variables of the program, on both sides."""
    # The kernels that our trainers select.
    kernels: dict[str, str] = {}
    select_mkl_kernels(kernels)
    return {
        **kernels,
        progress.FOLDER: str(progress_folder),
        fleet_program.BATCHES: str(batches),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": python_path,
    }


def read(progress_folder: Path, started: float) -> Run:
    trainers = [progress.read(progress_folder / f"worker-{number}") for number in range(NODES)]
    return Run(
        per_second=sum(
            fleet_program.BATCH * (len(each) - 1) / (each[-1].seconds - each[0].seconds) for each in trainers
        ),
        first_batch_seconds=max(each[0].seconds for each in trainers) - started,
    )


def _free_ports() -> int:
    """The first of as many consecutive ports as a node needs, which are free now on all addresses."""
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
