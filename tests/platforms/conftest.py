"""Hosts to test with, programs for nodes that misbehave, and waiting that ends as soon as it may."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import elasticdl
from elasticdl.platforms.local.host import Host
from elasticdl.platforms.local.local_platform import LocalPlatform
from elasticdl.platforms.platform import NodeRequest, Platform

PATIENCE_SECONDS = 60.0

# Starts a host as another process would, tells the process ids of its nodes, and waits to be killed.
HOST_PROGRAM = """
import json, os, sys
from pathlib import Path
from elasticdl.platforms.local.host import Host
from elasticdl.platforms.platform import NodeRequest

folder, commands, then = Path(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
host = Host(folder / "socket", folder / "logs", os.environ)
host.start()
for name, command in commands.items():
    host.spawn(NodeRequest(name=name, role="worker", command=tuple(command)))
print(json.dumps({"keeper": host._keeper.pid, **{name: host.pid(name) for name in commands}}), flush=True)
exec(then)
"""

# Leaves behind a process in a session of its own, whose parent is gone, and which ignores SIGTERM.
DAEMON_PROGRAM = """
import os, signal, sys
ready, is_ready = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with open(sys.argv[1] + ".partial", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".partial", sys.argv[1])
    os.close(is_ready)
    while True:
        signal.pause()
os.wait()
os.close(is_ready)
os.read(ready, 1)
if len(sys.argv) > 2:
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.fixture
def is_alive() -> Callable[[int], bool]:
    return alive


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    def wait(condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "timed out"
            time.sleep(0.01)

    return wait


@pytest.fixture
def all_gone(eventually: Callable[[Callable[[], object]], None]) -> Callable[..., None]:
    """Waits until none of these processes is there any more."""

    def wait(*pids: int) -> None:
        eventually(lambda: not any(alive(pid) for pid in pids))

    return wait


@pytest.fixture
def node() -> Callable[..., NodeRequest]:
    def make(name: str, *command: str, role: str = "worker", **environment: str) -> NodeRequest:
        return NodeRequest(name=name, role=role, command=command, environment=environment)

    return make


@pytest.fixture
def daemon(tmp_path: Path) -> Callable[..., tuple[str, ...]]:
    """The command of a node that starts a daemon and ends, or goes on as another command."""

    def command(pid_file: Path, *and_then: str) -> tuple[str, ...]:
        return (sys.executable, "-I", "-S", "-c", DAEMON_PROGRAM, str(pid_file), *and_then)

    return command


@pytest.fixture
def pid_in(eventually: Callable[[Callable[[], object]], None]) -> Callable[[Path], int]:
    def read(file: Path) -> int:
        eventually(file.exists)
        return int(file.read_text())

    return read


@pytest.fixture
def make_host(tmp_path: Path) -> Iterator[Callable[..., Host]]:
    hosts: list[Host] = []

    def make(**options: int) -> Host:
        host = Host(tmp_path / "socket", tmp_path / "logs", os.environ, **options)
        hosts.append(host)
        host.start()
        return host

    yield make
    for host in hosts:
        host.close()


@pytest.fixture
def host(make_host: Callable[..., Host]) -> Host:
    return make_host()


class OtherHost:
    """A host in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], pids: dict[str, int]) -> None:
        assert process.stdout is not None
        self.process = process
        self.output = process.stdout
        self.keeper = pids.pop("keeper")
        self.nodes = pids


@pytest.fixture
def other_host(tmp_path: Path) -> Iterator[Callable[..., OtherHost]]:
    """Started with commands by name; `then` is what its main thread does next. Same job as the fixture `host`."""
    processes: list[subprocess.Popen[str]] = []
    root = str(Path(elasticdl.__file__).parents[1])

    def start(then: str = "sys.stdin.read()", **commands: tuple[str, ...]) -> OtherHost:
        process = subprocess.Popen(
            [sys.executable, "-c", HOST_PROGRAM, str(tmp_path), json.dumps(commands), then],
            env={**os.environ, "PYTHONPATH": root},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        processes.append(process)
        assert process.stdout is not None
        return OtherHost(process, json.loads(process.stdout.readline()))

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture(params=["local"])
def open_platform(request: pytest.FixtureRequest) -> Callable[[], Platform]:
    """Gives a new connection to the same nodes each time, as a master that is started again gets it.

    Every platform comes in here, and then has to pass `test_contract.py`.
    """
    assert request.param == "local"
    request.getfixturevalue("host")
    folder: Path = request.getfixturevalue("tmp_path")
    return lambda: LocalPlatform(folder / "socket")
