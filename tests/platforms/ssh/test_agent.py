"""The agent of a host, over pipes instead of a connection."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.platforms.ssh import agent
from elasticdl.platforms.ssh.launch import Document


class Agent:
    def __init__(self, document: Document, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", Path(agent.__file__).read_text()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": "/usr/bin:/bin", **environment},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.say(json.dumps(document.to_dict()).encode())
        assert self.stdout.readline() == agent.GREETING

    def say(self, line: bytes) -> None:
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def frames(self) -> Iterator[tuple[bytes, bytes]]:
        while head := self.stdout.read(agent.HEAD.size):
            kind, length = agent.HEAD.unpack(head)
            yield kind, self.stdout.read(length)

    def output_and_end(self) -> tuple[str, dict[str, Any]]:
        *outputs, (_, last) = self.frames()
        return b"".join(data for _, data in outputs).decode(), json.loads(last)


@pytest.fixture
def start() -> Iterator[Callable[..., Agent]]:
    agents: list[Agent] = []

    def start(document: Document, **environment: str) -> Agent:
        agents.append(Agent(document, **environment))
        return agents[-1]

    yield start
    for each in agents:
        each.process.kill()
        each.process.wait()
        each.stdin.close()
        each.stdout.close()


def test_addresses_are_those_of_the_connection(start: Callable[..., Agent]) -> None:
    command = ("sh", "-c", "echo $MASTER_ADDR $MY_POD_IP $ELASTICDL_BIND")
    document = Document(command=command, master_port=7)
    shown, end = start(document, SSH_CONNECTION="10.0.0.1 40000 10.0.0.2 22").output_and_end()
    assert (shown.split(), end["exit_code"]) == (["10.0.0.1:7", "10.0.0.2", "10.0.0.2"], 0)


def test_given_address_of_the_master_goes_first(start: Callable[..., Agent]) -> None:
    document = Document(command=("sh", "-c", "echo $MASTER_ADDR"), master_port=7, master_host="fd00::1")
    shown, _ = start(document, SSH_CONNECTION="10.0.0.1 40000 10.0.0.2 22").output_and_end()
    assert shown == "[fd00::1]:7\n"


def test_files_are_private_and_go_with_the_node(start: Callable[..., Agent]) -> None:
    command = (
        "sh",
        "-c",
        "cat $ELASTICDL_TOKEN_FILE; stat -c %a $ELASTICDL_TOKEN_FILE; echo $ELASTICDL_TOKEN_FILE",
    )
    shown, _ = start(Document(command=command, files={"ELASTICDL_TOKEN_FILE": "secret\n"})).output_and_end()
    content, mode, name = shown.split()
    assert (content, mode) == ("secret", "600")
    assert not Path(name).parent.exists()


def test_cores_are_shared_by_the_nodes_of_the_host(start: Callable[..., Agent]) -> None:
    document = Document(command=("sh", "-c", "echo $ELASTICDL_THREADS"), sharing=10_000)
    assert start(document).output_and_end()[0] == "1\n"


def test_termination_reaches_the_node(start: Callable[..., Agent]) -> None:
    running = start(
        Document(command=("sh", "-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done"))
    )
    frames = running.frames()
    assert next(frames) == (agent.OUTPUT, b"ready\n")
    running.say(agent.TERMINATE)
    assert json.loads(list(frames)[-1][1])["exit_code"] == 5


def test_end_of_the_connection_kills_node_and_descendants(
    start: Callable[..., Agent],
    tmp_path: Path,
    daemon: Callable[..., tuple[str, ...]],
    pid_in: Callable[[Path], int],
    all_gone: Callable[..., None],
) -> None:
    running = start(Document(command=daemon(tmp_path / "pid", "sleep", "1000")))
    pid = pid_in(tmp_path / "pid")
    running.stdin.close()
    all_gone(pid, running.process.pid)


def test_killed_agent_takes_its_node_along(
    start: Callable[..., Agent], tmp_path: Path, pid_in: Callable[[Path], int], all_gone: Callable[..., None]
) -> None:
    command = (
        "sh",
        "-c",
        f"echo $$ > {tmp_path}/partial; mv {tmp_path}/partial {tmp_path}/pid; exec sleep 1000",
    )
    running = start(Document(command=command))
    pid = pid_in(tmp_path / "pid")
    running.process.kill()
    all_gone(pid)
