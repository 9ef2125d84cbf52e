"""--help groups the flags by topic and tells their defaults; it is coloured on a terminal only."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elasticdl import __version__
from elasticdl.cli.group import Entry
from elasticdl.cli.main import COMMANDS
from elasticdl.jobs.flags.flag import Topic
from elasticdl.jobs.schema.flag_index import LEAVES

ROOT = Path(__file__).parents[2]


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("asked", [["--help"], ["-h"], []])
def test_the_commands(elasticdl: Any, asked: list[str]) -> None:
    result = elasticdl(*asked)
    assert result.code == 0
    for name in ("train", "evaluate", "predict", "completion"):
        assert f"\n  {name} " in result.out


def test_a_command_whose_module_is_not_there_is_not_offered(
    elasticdl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMANDS, "later", Entry(place="elasticdl.cli.later:later", help="Not yet."))
    assert "later" not in elasticdl("--help").out
    assert "There is no command 'later'" in elasticdl("later").err


@pytest.mark.parametrize("kind", ["train", "evaluate", "predict"])
def test_every_flag_of_a_command_is_explained_under_its_topic(elasticdl: Any, kind: str) -> None:
    text = elasticdl(kind, "--help").out
    topics = [topic for topic in Topic if f"\n{topic.value}:\n" in text]
    places = [text.index(f"\n{topic.value}:\n") for topic in topics]
    assert places == sorted(places)
    for name, leaf in LEAVES.items():
        line = re.compile(rf"^  --{name}\b", re.MULTILINE)
        shown = line.search(text) is not None
        assert shown == (kind in leaf.flag.kinds), name
        if shown:
            section = text[text.index(f"\n{leaf.flag.topic.value}:\n") :].split("\n\n")[0]
            assert line.search(section)
            assert words(leaf.flag.help) in words(section)


@pytest.mark.parametrize(
    "line",
    [
        "--minibatch_size N Samples in a batch. [default: 64]",
        "--num_ps, --num_ps_pods N Number of parameter servers. [default: min_ps, and at least 1 with "
        "ParameterServerStrategy]",
        "--distribution_strategy Local|ParameterServerStrategy|AllreduceStrategy",
        "--stall_factor NUMBER Kill a worker that makes no progress",
        "[default: 20]",
        "--shuffle true|false",
        "--dry_run Print the whole job as YAML, with an image as manifests for Kubernetes, and do not run it.",
        "-f, --file PATH",
    ],
)
def test_lines_of_the_help(elasticdl: Any, line: str) -> None:
    assert line in words(elasticdl("train", "--help").out)


def test_the_version(elasticdl: Any) -> None:
    assert elasticdl("--version").out == f"elasticdl, version {__version__}\n"


def on_a_terminal(*args: str, **env: str) -> bytes:
    """What a person sees: the output of the command with a terminal for its standard output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "elasticdl", *args],
        stdout=theirs,
        stderr=theirs,
        cwd=ROOT,
        env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", **env},
    )
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:
        pass  # Linux says EIO when the other end is closed.
    finally:
        os.close(ours)
        process.wait()
    return seen


def test_colours_on_a_terminal_only(elasticdl: Any) -> None:
    assert b"\x1b[36m\x1b[1mTraining" in on_a_terminal("train", "--help")
    assert b"\x1b[31m\x1b[1merror:" in on_a_terminal("trian")
    assert b"\x1b" not in on_a_terminal("train", "--help", NO_COLOR="1")
    assert "\x1b" not in elasticdl("train", "--help").out
