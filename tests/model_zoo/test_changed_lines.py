"""How much of a plain PyTorch program changes when it is made elastic: the pages say it, and it must not grow."""

from __future__ import annotations

import ast
import difflib
from pathlib import Path

ZOO = Path(__file__).resolve().parents[2] / "model_zoo" / "digits"


def _code(name: str) -> list[str]:
    """Without the docstring, and without empty lines."""
    text = (ZOO / f"{name}.py").read_text()
    docstring = ast.parse(text).body[0]
    return [line for line in text.splitlines()[docstring.end_lineno :] if line.strip()]


def _changed(plain: list[str], elastic: list[str]) -> list[str]:
    """Lines of the elastic program that the plain one does not have."""
    return [line[2:] for line in difflib.ndiff(plain, elastic) if line.startswith("+ ")]


def test_all_reduce_changes_eight_lines() -> None:
    changed = _changed(_code("plain_loop"), _code("elastic_loop"))
    assert len(changed) == 8, changed
