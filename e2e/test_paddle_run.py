"""`elasticdl paddle run`: jobs of Paddle's Kubernetes guide with three nodes on this machine, and a node killed."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from e2e.conftest import DEADLINE, ROOT, wait_until
from elasticdl.paddle_compat.cluster.passes import newest_pass

COMMAND = [sys.executable, "-m", "elasticdl.cli.main", "paddle"]
NODES = 3
# Ports of a node: two servers, two that are kept free, the trainer's and gloo's.
PORTS = 6
_INFINITE_COST = """
large = ParameterAttribute(initial_mean=1e5, initial_std=0.0)
outputs(sum_cost(input=fc_layer(input=output, size=1, act=ExpActivation(), param_attr=large)))
"""
_FLEET_PROGRAM = """
import numpy as np
import paddle
from paddle.distributed import fleet

paddle.enable_static()
fleet.init(fleet.PaddleCloudRoleMaker(is_collective=False))
x = paddle.static.data("x", [None, 4], "float32")
loss = paddle.mean(paddle.square(paddle.static.nn.fc(x, 1)))
strategy = fleet.DistributedStrategy()
strategy.a_sync = True
fleet.distributed_optimizer(paddle.optimizer.SGD(0.01), strategy).minimize(loss)
if fleet.is_server():
    fleet.init_server()
    fleet.run_server()
else:
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    fleet.init_worker()
    for _ in range(5):
        feed = {"x": np.ones([8, 4], np.float32)}
        executor.run(paddle.static.default_main_program(), feed=feed, fetch_list=[loss])
    print(f"trainer {fleet.worker_index()} of {fleet.worker_num()} has trained", flush=True)
    fleet.stop_worker()
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paddle") / "paddle-cluster-job"
    sizes = ("--reviews=3000", "--ratings=6000")
    command = [*COMMAND, "data", f"--out_dir={folder}", f"--split_count={NODES}", *sizes]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


@pytest.fixture
def job(data: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(data, tmp_path / data.name))


def _free_port() -> int:
    """The first of as many as a node needs, free at the moment on the addresses of all nodes.

    Tests that run at the same time have ranges of their own: servers bind their ports seconds after this.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    start = 21000 + 1000 * (worker % 9)
    for first in range(start, start + 1000 - PORTS, PORTS):
        try:
            for host in range(1, NODES + 1):
                for port in range(first, first + PORTS):
                    with socket.socket() as probe:
                        probe.bind((f"127.0.0.{host}", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


def _wait_until(
    condition: Callable[[], bool], what: str, *, process: subprocess.Popen[str], job: Path
) -> None:
    """Fails as soon as the run has ended."""
    wait_until(lambda: condition() or process.poll() is not None, what)
    assert condition() or process.poll() is None, (job / "run.log").read_text()


@contextmanager
def _running(job: Path, config_dir: str, *words: str, nodes: int = NODES) -> Iterator[subprocess.Popen[str]]:
    command = [*COMMAND, "run", f"--nodes={nodes}", f"--job_path={job.parent}", f"--job_name={job.name}"]
    command += [f"--train_config_dir={config_dir}", f"--port={_free_port()}", *words]
    with (job / "run.log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, text=True)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def _run(job: Path, config_dir: str, *words: str) -> tuple[int, str]:
    with _running(job, config_dir, *words) as process:
        code = process.wait(timeout=DEADLINE)
    return code, (job / "run.log").read_text()


def _kill_node(run: subprocess.Popen[str], number: int) -> None:
    """Unless it has ended. Its trainer and its servers die with it."""
    if node := _node(run, number):
        node.kill()


def _node(run: subprocess.Popen[str], number: int) -> psutil.Process | None:
    """The process that is this node at the moment."""
    found = {}
    for process in psutil.Process(run.pid).children():
        with contextlib.suppress(psutil.NoSuchProcess, KeyError):
            _, node, generation = process.environ()["ELASTICDL_PADDLE_UID"].split("-")
            found[int(node), int(generation)] = process
    own = [each for each in found if each[0] == number]
    return found[max(own)] if own else None


def _costs(log: str) -> dict[int, float]:
    """The mean cost of each pass, over the data of node 0."""
    return {
        int(number): float(cost)
        for number, cost in re.findall(r"Pass=(\d+) Batch=\d+ .*AvgCost=([\d.]+)", log)
    }


def test_recommendation_goes_on_when_a_node_is_killed(job: Path) -> None:
    """The others restart in place from the newest complete pass, and the cost goes on falling."""
    output = job / "output"
    words = ("--num_passes=6", "--config_args=size=16,batch_size=100")
    with _running(job, "recommendation", *words) as process:
        _wait_until(lambda: (newest_pass(output) or 0) >= 1, "the second pass", process=process, job=job)
        _kill_node(process, 1)
        code = process.wait(timeout=DEADLINE)
    log = (job / "run.log").read_text()
    assert code == 0, log
    assert "Restarting node 1: exit code 137 (1 of 6)" in log
    assert re.search(r"Restored 29 parameters from .*/output/pass-0000\d", log)
    costs = _costs(log)
    assert sorted(costs) == list(range(6))
    assert costs[5] < 0.6 * costs[0]
    assert {each.name for each in output.iterdir()} == {
        ".configuration",
        *(f"node_{number}" for number in range(NODES)),
        *(f"pass-0000{number}" for number in range(6)),
    }
    for number in range(NODES):
        assert {"server.log", "train.log"} <= {each.name for each in (output / f"node_{number}").iterdir()}
    saved = {each.name: each for each in (output / "pass-00005").iterdir()}
    assert {
        "___embedding_0__.w0",
        "___fc_layer_0__.wbias",
        "_movie_fusion.w2",
        "_user_fusion.w3",
        "done",
    } <= {*saved}
    assert np.isfinite(np.frombuffer(saved["_movie_fusion.w2"].read_bytes()[16:], "<f4")).all()


def test_node_killed_in_each_phase_of_an_attempt_loses_no_pass(job: Path) -> None:
    output = job / "output"
    # The data of two nodes.
    shutil.rmtree(job / "2")

    def has(file: str, text: str = "") -> bool:
        path = output / file
        return path.exists() and text in path.read_text()

    phases: list[tuple[str, Callable[[], bool], int]] = [
        ("a node is at the barrier", lambda: any(output.glob("node_*/started")), 1),
        ("a trainer starts", lambda: has("node_0/train.log", "commandline"), 0),
        ("a trainer waits for servers", lambda: has("node_0/train.log", "pserver 0"), 1),
        ("a trainer is done", lambda: any(output.glob("node_*/finished")), 1),
    ]
    with _running(job, "quick_start", "--num_passes=3", nodes=2) as process:
        for name, is_reached, victim in phases:
            _wait_until(is_reached, name, process=process, job=job)
            _kill_node(process, victim)
        code = process.wait(timeout=DEADLINE)
    log = (job / "run.log").read_text()
    assert code == 0, log
    assert log.count("exit code 137") >= len(phases) - 1, log
    saved = re.findall(
        r"Saved 2 parameters in \S+/pass-0000(\d)", (output / "node_0" / "train.log").read_text()
    )
    assert saved == ["0", "1", "2"], log


@pytest.mark.parametrize("frozen", ["node", "trainer"])
def test_frozen_node_is_killed_and_the_run_goes_on(job: Path, frozen: str) -> None:
    output = job / "output"
    words = ("--heartbeat_timeout=3", "--num_passes=6", "--config_args=size=16,batch_size=100")
    with _running(job, "recommendation", *words) as process:
        _wait_until(lambda: newest_pass(output) is not None, "the first pass", process=process, job=job)
        node = _node(process, 1)
        assert node is not None
        processes = node.children(recursive=True)
        if frozen == "trainer":
            processes = [each for each in processes if "train" in each.cmdline()]
        else:
            processes.insert(0, node)
        for each in processes:
            each.suspend()
        code = process.wait(timeout=DEADLINE)
    log = (job / "run.log").read_text()
    assert code == 0, log
    assert re.findall(r"Killing node (\d): unresponsive for \d s \(its process \d+ is stopped\)", log) == [
        "1"
    ]
    assert log.count("Restarting node") == 1
    assert re.search(r"Restored 29 parameters from .*/output/pass-0000\d", log)
    assert sorted(_costs(log)) == list(range(6))


def test_second_run_of_quick_start_continues_behind_the_first(job: Path) -> None:
    code, log = _run(job, "quick_start", "--num_passes=3")
    first = _costs(log)
    assert code == 0, log
    assert first[2] < 0.8 * first[0]
    code, log = _run(job, "quick_start", "--num_passes=5")
    assert code == 0, log
    assert "Restored 2 parameters" in log
    costs = _costs(log)
    assert sorted(costs) == [3, 4]
    assert costs[4] < first[2]
    code, log = _run(job, "quick_start", "--num_passes=5")
    assert code == 0, log
    assert "All 5 passes are complete" in log


@pytest.mark.parametrize(
    ("line", "words", "code", "message"),
    [
        ("import os; os._exit(7)", ("--restarts=0",), 7, "exit code 7"),
        ("crf_layr(input=output)", (), 2, "crf_layr is not supported"),
        (_INFINITE_COST, (), 2, "The cost is inf in batch 1 of pass 0"),
    ],
    ids=["exit-code", "layer", "infinite-cost"],
)
def test_failing_configuration_ends_the_run_with_its_exit_code(
    job: Path, line: str, words: tuple[str, ...], code: int, message: str
) -> None:
    config = job / "quick_start" / "trainer_config.py"
    config.write_text(f"{config.read_text()}\n{line}\n")
    found, log = _run(job, "quick_start", "--num_passes=2", *words)
    logs = "".join(path.read_text() for path in job.glob("output/node_*/*.log"))
    assert found == code, log
    assert message in log + logs
    assert newest_pass(job / "output") is None


def test_fleet_program_runs_as_it_stands(job: Path) -> None:
    """Its servers and trainers meet over gloo before the servers listen."""
    config = job / "fleet"
    config.mkdir()
    (config / "train.py").write_text(_FLEET_PROGRAM)
    code, log = _run(job, "fleet", "--num_passes=1")
    assert code == 0, log
    for number in range(NODES):
        trained = (job / "output" / f"node_{number}" / "train.log").read_text()
        assert f"trainer {number} of {NODES} has trained" in trained
