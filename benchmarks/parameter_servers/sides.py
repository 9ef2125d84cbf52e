"""The compared sides, each with all its processes: started, observed through the progress of its trainers, killed.

Every side trains indefinitely on the same data. It is in steady state when it has trained all of the data once.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.parameter_servers import clicks, progress
from benchmarks.parameter_servers.go_server import go_server
from benchmarks.parameter_servers.missing import need, need_paddle
from benchmarks.parameter_servers.torchrec import torchrec_python
from benchmarks.processes import ROOT, Stuck, elasticdl, free_port, running, tail, wait_until
from benchmarks.turns import Side, Speed, ended
from elasticdl.worker.environment import select_mkl_kernels

_PROGRAMS = "benchmarks.parameter_servers"
# Warm-up after a suspension, until buffers are filled again.
_WARM_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The settings that all sides of one comparison share."""

    data: Path
    sizes: clicks.Sizes
    # A key of clicks.LAYERS; "" without a model.
    size: str


class Trainers(Side):
    def __init__(
        self, name: str, roots: list[psutil.Process], setting: Setting, home: Path, trainers: Sequence[str]
    ) -> None:
        super().__init__(roots)
        self.name = name
        self._sizes = setting.sizes
        self.home = home
        self._files = [home / "progress" / trainer for trainer in trainers]

    def under_way(self) -> bool:
        done = [len(progress.read(path)) for path in self._files]
        return min(done) > 2 and sum(done) >= self._sizes.batches

    def last_output(self) -> str:
        logs = (*self.home.glob("*.log"), *self.home.glob("jobs/*/logs/*.log"))
        return "\n".join(f"{self.name}, {log.name}:\n{tail(log)}" for log in logs)

    def speed(self, seconds: float) -> Speed:
        """Samples per second of all its trainers: of each, between its first and its last batch in that time."""
        self.go_on()
        time.sleep(_WARM_SECONDS)
        began, worked = time.monotonic(), self.work()
        until = began + seconds
        while time.monotonic() < until or min(map(len, self._since(began))) < 3:
            if time.monotonic() > until + 120.0:
                raise Stuck(f"there are no batches:\n{self.last_output()}")
            time.sleep(0.05)
        batches, work = self._since(began), self.work() - worked
        self.halt()
        rates = (
            self._sizes.batch * (len(each) - 1) / (each[-1].seconds - each[0].seconds) for each in batches
        )
        return Speed(per_second=sum(rates), work=work / (self._sizes.batch * sum(map(len, batches))))

    def learned(self) -> tuple[float, float]:
        """The first and the last loss."""
        found = [each.loss for path in self._files for each in progress.read(path)[:3]]
        last = [
            each.loss for path in self._files for each in progress.read(path)[-self._sizes.batches // 4 :]
        ]
        return statistics.mean(found), statistics.mean(last)

    def check_learning(self) -> None:
        first, last = self.learned()
        if not (math.isfinite(last) and last < first):
            raise Stuck(f"{self.name} does not learn: its loss was {first:.4f} and is {last:.4f}")

    def batches(self) -> list[list[progress.Batch]]:
        """The batches that each of its trainers has finished."""
        return [progress.read(path) for path in self._files]

    def _since(self, began: float) -> list[list[progress.Batch]]:
        return [[each for each in progress.read(path) if each.seconds >= began] for path in self._files]


@contextlib.contextmanager
def plain_torch(setting: Setting, *, threads: int) -> Iterator[Trainers]:
    need("torch", "PyTorch")
    command = _program("plain_torch", setting, f"--threads={threads}")
    with _started(f"{threads} threads", setting, {"worker-0": (command, {})}) as side:
        yield side


@contextlib.contextmanager
def torchrec(setting: Setting, *, threads: int) -> Iterator[Trainers]:
    python = str(torchrec_python())
    command = [python, *_program("plain_torchrec", setting, f"--threads={threads}")[1:]]
    # Only its packages and our code: the benchmark's environment may have another PyTorch.
    with _started(f"{threads} threads", setting, {"worker-0": (command, {"PYTHONPATH": str(ROOT)})}) as side:
        yield side


@contextlib.contextmanager
def model_alone(
    setting: Setting, *, workers: int, threads: int, program: str = "model_alone", flags: Sequence[str] = ()
) -> Iterator[Trainers]:
    """Workers with only the model."""
    processes: dict[str, tuple[list[str], dict[str, str]]] = {}
    for number in range(workers):
        command = _program(program, setting, f"--threads={threads}", f"--number={number}", *flags)
        processes[f"worker-{number}"] = (command, {})
    with _started(f"{workers} × {threads} threads", setting, processes) as side:
        yield side


@contextlib.contextmanager
def plain_keras(setting: Setting, *, threads: int) -> Iterator[Trainers]:
    need("tensorflow", "TensorFlow")
    command = _program("plain_keras", setting, f"--threads={threads}")
    with _started(f"{threads} threads", setting, {"worker-0": (command, {})}) as side:
        yield side


@contextlib.contextmanager
def estimator(setting: Setting, *, workers: int, threads: int, unique: bool) -> Iterator[Trainers]:
    """A parameter server and so many trainers, of which the first is the chief."""
    need("tensorflow_estimator", "TensorFlow 2.15, the last with Estimators,")
    cluster = {"chief": 1, "ps": 1} | ({"worker": workers - 1} if workers > 1 else {})
    addresses = {role: [f"127.0.0.1:{free_port()}" for _ in range(count)] for role, count in cluster.items()}
    processes: dict[str, tuple[list[str], dict[str, str]]] = {}
    for role, count in cluster.items():
        for index in range(count):
            place = {"cluster": addresses, "task": {"type": role, "index": index}}
            more = ["--unique"] if unique else []
            command = _program("estimator_program", setting, f"--threads={threads}", *more)
            processes[f"{role}-{index}"] = (command, {"TF_CONFIG": json.dumps(place)})
    name = f"{workers} × {threads} threads" + (", rows fetched once" if unique else "")
    with _started(name, setting, processes, servers=("ps-0",)) as side:
        yield side


@contextlib.contextmanager
def paddle(
    setting: Setting, *, workers: int, threads: int, selects_kernels: bool = False
) -> Iterator[Trainers]:
    """Paddle as it is installed; `selects_kernels`: with the MKL kernels that our workers select, where it matters."""
    need_paddle()
    kernels: dict[str, str] = {}
    if selects_kernels:
        select_mkl_kernels(kernels)
    address = f"127.0.0.1:{free_port()}"
    trainers = [f"127.0.0.1:{free_port()}" for _ in range(workers)]
    common = {
        **kernels,
        "PADDLE_PSERVERS_IP_PORT_LIST": address,
        "PADDLE_TRAINERS_NUM": str(workers),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(trainers),
        "POD_IP": "127.0.0.1",
        "OMP_NUM_THREADS": str(threads),
    }
    command = _program("paddle_program", setting)
    processes = {
        "ps-0": (
            command,
            {**common, "TRAINING_ROLE": "PSERVER", "PADDLE_PORT": address.partition(":")[2]},
        )
    }
    for number, trainer in enumerate(trainers):
        variables = {
            "TRAINING_ROLE": "TRAINER",
            "PADDLE_TRAINER_ID": str(number),
            "PADDLE_PORT": trainer.partition(":")[2],
        }
        processes[f"worker-{number}"] = (command, {**common, **variables})
    with _started(f"{workers} × {threads} threads", setting, processes, servers=("ps-0",)) as side:
        yield side


@contextlib.contextmanager
def go(setting: Setting, *, workers: int, threads: int) -> Iterator[Trainers]:
    with tempfile.TemporaryDirectory() as folder, go_server(Path(folder)) as (pid, address):
        processes: dict[str, tuple[list[str], dict[str, str]]] = {}
        for number in range(workers):
            more = [f"--address={address}", f"--number={number}", f"--threads={threads}"]
            more += [] if setting.size else ["--path"]
            processes[f"worker-{number}"] = (_program("go_worker", setting, *more), {})
        name = f"{workers} × {threads} threads"
        with _started(name, setting, processes, more=[psutil.Process(pid)]) as side:
            yield side


@contextlib.contextmanager
def our_path(setting: Setting, *, workers: int) -> Iterator[Trainers]:
    """One of our servers, and workers without a model."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "address"
        command = [sys.executable, "-m", f"{_PROGRAMS}.our_server", f"--address={file}"]
        with running(command, log=Path(folder) / "log") as server:
            wait_until(file.exists, "our server listens")
            processes: dict[str, tuple[list[str], dict[str, str]]] = {}
            for number in range(workers):
                more = [f"--address={file.read_text()}", f"--number={number}"]
                processes[f"worker-{number}"] = (_program("our_path", setting, *more), {})
            roots = [psutil.Process(server.pid)]
            with _started(f"{workers} workers", setting, processes, more=roots) as side:
                yield side


@contextlib.contextmanager
def ours(
    setting: Setting,
    *,
    workers: int,
    threads: int,
    servers: int = 1,
    framework: str = "torch",
    optimizer: str = "adagrad",
    flags: Sequence[str] = (),
) -> Iterator[Trainers]:
    """A job, as a user starts it."""
    command = elasticdl(
        "train",
        "--job_name=benchmark",
        "--model_zoo=benchmarks/zoo",
        f"--model_def=deepfm.{framework}_deepfm.custom_model",
        f"--training_data={setting.data}",
        f"--minibatch_size={setting.sizes.batch}",
        "--distribution_strategy=ParameterServerStrategy",
        f"--num_ps={servers}",
        f"--num_workers={workers}",
        # Sides are suspended while others are timed, which must not count as a stall.
        "--stall_factor=0",
        *flags,
    )
    variables = {
        "ELASTICDL_BENCHMARK_SIZE": setting.size,
        "ELASTICDL_BENCHMARK_OPTIMIZER": optimizer,
        "ELASTICDL_THREADS": str(threads),
    }
    trainers = [f"worker-{number}" for number in range(workers)]
    name = f"{workers} × {threads} threads"
    with _started(name, setting, {"job": (command, variables)}, trainers=trainers) as side:
        yield side


def _program(module: str, setting: Setting, *more: str) -> list[str]:
    size = [f"--size={setting.size}"] if setting.size else []
    return [sys.executable, "-m", f"{_PROGRAMS}.{module}", str(setting.data), *size, *more]


@contextlib.contextmanager
def _started(
    name: str,
    setting: Setting,
    processes: Mapping[str, tuple[list[str], Mapping[str, str]]],
    *,
    servers: Sequence[str] = (),
    trainers: Sequence[str] = (),
    more: Sequence[psutil.Process] = (),
) -> Iterator[Trainers]:
    """Returns all processes by name, trainers and servers; `trainers`, if they are not our processes."""
    home = Path(tempfile.mkdtemp())
    folder = home / "progress"
    folder.mkdir()
    common = {
        progress.FOLDER: str(folder),
        "ELASTICDL_HOME": str(home),
        "ELASTICDL_BENCHMARK_MODELS": str(home),
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        roots = list(more)
        for each, (command, variables) in processes.items():
            process = stack.enter_context(
                running(command, log=home / f"{each}.log", environment={**common, **variables})
            )
            roots.append(psutil.Process(process.pid))
        side = Trainers(
            name, roots, setting, home, trainers or [each for each in processes if each not in servers]
        )
        yield stack.enter_context(ended(side))
