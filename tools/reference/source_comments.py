"""Comments of fields, read from the source: a comment above a field, or behind it, is its description."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from types import ModuleType


def field_comments(owner: type | ModuleType) -> Mapping[str, str]:
    """Returns the comments of the assignments of a class or a module by name. Those without a comment are left out.

    A comment block belongs to the line below it, and a comment behind an assignment to that assignment.
    """
    source = inspect.getsource(owner)
    lines = inspect.cleandoc(source).splitlines() if isinstance(owner, type) else source.splitlines()
    body = ast.parse("\n".join(lines)).body
    if isinstance(owner, type):
        [definition] = [node for node in body if isinstance(node, ast.ClassDef)]
        body = definition.body
    found = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        else:
            continue
        if text := _above(lines, node.lineno - 1) or _behind(lines[(node.end_lineno or node.lineno) - 1]):
            found[name] = text
    return found


def _above(lines: list[str], index: int) -> str:
    block: list[str] = []
    while index > 0 and lines[index - 1].lstrip().startswith("# "):
        index -= 1
        block.insert(0, lines[index].strip().removeprefix("# "))
    return " ".join(block)


def _behind(line: str) -> str:
    comment = line.partition("  # ")[2].strip()
    return "" if comment.startswith(("noqa", "type:")) else comment
