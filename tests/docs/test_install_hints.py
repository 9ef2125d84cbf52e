"""Hints to install something name distributions that exist: those of pyproject.toml, and few others."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from elasticdl.extras import REQUIREMENTS, install_command

ROOT = Path(__file__).resolve().parents[2]
# Needed by programs of users, not by this distribution.
OTHERS = {"tensorboard"}
_HINT = re.compile(r"pip3? install (?:--?[\w-]+ )*'?([A-Za-z0-9._-]+(?:\[[^\]]*\])?)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def project() -> dict[str, list[str]]:
    # Since Python 3.11.
    tomllib = pytest.importorskip("tomllib")
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"": document["dependencies"], **document["optional-dependencies"]}


def name_of(requirement: str) -> str:
    found = _NAME.match(requirement)
    assert found, requirement
    return found[0]


@pytest.mark.parametrize("extra", REQUIREMENTS)
def test_table_of_extras_is_that_of_the_project(extra: str) -> None:
    known = {requirement.partition(";")[0].strip() for requirement in project()[extra]}
    assert set(REQUIREMENTS[extra]) <= known
    # TensorFlow goes by another name on other processors.
    assert len({name.partition("-cpu")[0] for name in map(name_of, known)}) == len(REQUIREMENTS[extra])


def test_install_command_is_quoted_for_a_shell() -> None:
    assert install_command("plots") == "pip install 'pillow>=10.1'"
    assert shlex.split(install_command("kubernetes"))[2:] == list(REQUIREMENTS["kubernetes"])


def test_every_hint_in_the_code_names_something_that_can_be_installed() -> None:
    extras = project()
    names = {name_of(requirement) for group in extras.values() for requirement in group} | OTHERS
    wrong = []
    for folder in ("elasticdl", "elasticai_api"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.is_relative_to(ROOT / "elasticdl" / "images"):
                # Of an image, into which wheels are copied.
                continue
            for named in _HINT.findall(path.read_text()):
                name, _, extra = named.partition("[")
                is_ours = name == "elasticdl" and set(extra.rstrip("]").split(",")) <= extras.keys()
                # The source tree itself is ".".
                if name not in {*names, "."} and not is_ours:
                    wrong.append(f"{path.relative_to(ROOT)}: {named}")
    assert wrong == []
