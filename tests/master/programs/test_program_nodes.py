"""How a program of the user's own is started: its words and its environment."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.lifecycle.roster import Node
from elasticdl.master.programs.node_environment import IN_PODS, Surroundings
from elasticdl.master.programs.program_nodes import ProgramNodes
from elasticdl.master.programs.shell_command import command_line, of_shell

TARGETS = {"ps": 1, "chief": 0, "evaluator": 0, "worker": 2}
ADDRESSES = {"ps": ["h:1"], "chief": [], "evaluator": [], "worker": ["h:3", "h:4", "h:5"]}


def programs(
    surroundings: Surroundings = Surroundings(),  # noqa: B008 - immutable
    **flags: object,
) -> ProgramNodes:
    spec = JobSpec.build(kind="train", name_suffix="x", job_command="python train.py", num_workers=2, **flags)
    return ProgramNodes(spec, environment={"MASTER_ADDR": "m:1"}, surroundings=surroundings)


def node(role: str = "worker", *, number: int = 3, slot: int = 1) -> Node:
    return Node(name=f"{role}-{number}", role=role, number=number, slot=slot)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python train.py --lr=0.1", ("python", "train.py", "--lr=0.1")),
        ("python 'my train.py'", ("python", "my train.py")),
        ("/bin/sh -c true", ("/bin/sh", "-c", "true")),
    ],
)
def test_a_program_is_started_directly(command: str, words: tuple[str, ...]) -> None:
    assert command_line(command) == words
    assert not of_shell(words)


@pytest.mark.parametrize(
    "command", ["cd x && python t.py", "A=1 python t.py", "python t.py $HOME", "python 't.py"]
)
def test_a_shell_only_where_it_takes_one(command: str) -> None:
    words = command_line(command)
    assert of_shell(words)
    assert words[-1] == command


def test_environment_of_a_node_names_it() -> None:
    made = programs(envs="MINE=1")
    request = made.request(node(), addresses=ADDRESSES, targets=TARGETS)
    assert request.command == ("python", "train.py")
    assert (request.place, request.places) == (1, 2)
    environment = request.environment
    assert environment["PATH"].startswith(str(Path(sys.executable).parent))
    assert {
        name: environment[name] for name in ("MASTER_ADDR", "MINE", "WORKER_ID", "WORKER_TYPE", "WORKER_NUM")
    } == {
        "MASTER_ADDR": "m:1",
        "MINE": "1",
        "WORKER_ID": "3",
        "WORKER_TYPE": "worker",
        "WORKER_NUM": "2",
    }


def test_program_in_pod_keeps_path_of_image() -> None:
    made = programs(IN_PODS)
    assert "PATH" not in made.request(node(), addresses={}, targets=TARGETS).environment
