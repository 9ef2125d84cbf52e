"""Every message that docs/troubleshooting.md quotes is one that the code prints."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"^<!-- not checked: message -->\n```text\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
# Stands for a value in a string.
_VALUE = "\0"


def _strings() -> Iterator[str]:
    """Every string of the code, with a mark in the place of each value."""
    for folder in ("elasticdl", "elasticai_api"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(
                        str(part.value) if isinstance(part, ast.Constant) else _VALUE for part in node.values
                    )
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield re.sub(r"%[\d.]*[sdrgf]", _VALUE, node.value)


@pytest.fixture(scope="module")
def code() -> str:
    return "\n".join(_strings())


def test_there_are_messages() -> None:
    assert len(MESSAGES) > 20


def _is_in(code: str, message: str) -> bool:
    pattern = ".*?".join(re.escape(part) for part in re.split(r"…", message))
    return re.search(pattern, code) is not None


@pytest.mark.parametrize("message", MESSAGES)
def test_message_is_in_the_code(code: str, message: str) -> None:
    # A line may be put together of two strings: the event, then its reason.
    assert _is_in(code, message) or all(_is_in(code, part) for part in message.split(": ") if part != "…")


def test_other_message_is_not_found(code: str) -> None:
    assert not _is_in(code, "The weather has … while it was being read.")
