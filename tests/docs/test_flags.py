"""Flags that the documentation mentions exist, and those in its commands are flags of these very commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from elasticdl.cli.main import root
from elasticdl.jobs.schema.flag_index import LEAVES, NAMES
from elasticdl.paddle_compat.cluster.arguments import PSERVER, TRAIN

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

_BASH = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_WORD = re.compile(r"(?<![\w-])--([a-z][\w-]*)")
# Of other programs.
_OTHERS = {
    "features",
    "host_discovery_script",
    "logdir",
    "max_np",
    "min_np",
    "model_dir",
    "nnodes",
    "nodes",
    "nproc_per_node",
}
_OTHER_PROGRAMS = re.compile(
    r"^\s*(curl|docker|gcloud|kind|kubectl|minikube|pip|scp) .*$|\bsudo .*$|<!-- run: .*$", re.MULTILINE
)


def _commands(
    group: click.Group, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _commands(command, (*words, name))
        yield (*words, name), command


COMMANDS = dict(_commands(root))


def _flags_of(command: click.Command) -> set[str]:
    options = [option for param in command.params for option in (*param.opts, *param.secondary_opts)]
    return {option.lstrip("-").replace("-", "_") for option in options} | {"help"}


ALL_FLAGS = (
    set(NAMES)
    | _OTHERS
    | {flag for command in COMMANDS.values() for flag in _flags_of(command)}
    | {"version"}
    | TRAIN.keys()
    | PSERVER.keys()
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_flags_exist(page: Path) -> None:
    # A flag that is shown because it is wrong stands beside the right one.
    text = re.sub(r"--num_worker\b(?!s)", "", page.read_text(encoding="utf-8").replace("\\\n", " "))
    text = _OTHER_PROGRAMS.sub("", text)
    named = {word.replace("-", "_") for word in _WORD.findall(text)}
    assert named <= ALL_FLAGS, f"{page.name} speaks of {sorted(named - ALL_FLAGS)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_have_their_flags(page: Path) -> None:
    for line in _lines(page):
        words = shlex.split(line, comments=True)
        while "elasticdl" in words:
            words = words[words.index("elasticdl") + 1 :]
            command = _command(words)
            if command is None:
                continue
            flags = {match[1].replace("-", "_") for word in words if (match := re.match(r"--([\w-]+)", word))}
            known = _flags_of(command) | {"num_worker"}
            if command.context_settings.get("ignore_unknown_options"):
                # Of `paddle train`, which gets them.
                known |= TRAIN.keys()
            assert flags <= known, f"{page.name}: {line}: {sorted(flags - known)}"


def _lines(page: Path) -> list[str]:
    blocks = _BASH.findall(page.read_text(encoding="utf-8"))
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    # Each part of a pipe or a substitution is a command of its own.
    return [part for line in lines for part in re.split(r"[|()]", line)]


def _command(words: list[str]) -> click.Command | None:
    return next((COMMANDS[tuple(words[:n])] for n in (3, 2, 1) if tuple(words[:n]) in COMMANDS), None)


def test_every_flag_of_a_running_job_is_explained_somewhere() -> None:
    """Beyond the list of all flags: those that have an effect today are explained in some page."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES if page.name != "flags.md")
    later = {"nodes", "cluster"}
    missing = [
        flag.name
        for flag in LEAVES.values()
        if flag.section not in later and not re.search(rf"--{flag.name}\b", text)
    ]
    assert not set(missing) - {"need_tf_config"}, missing
