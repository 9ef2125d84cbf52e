"""TensorFlow's errors, cut down to what a user can read: the sentence that says what is wrong, and their own frames.

TensorFlow packs the traceback of Python code that it called into the text of its error, among the names of its
own nodes and a long way through its own files.
"""

from __future__ import annotations

import re
from typing import Any

import tensorflow as tf

from elasticdl.errors import UserError
from elasticdl.jobs.zoo_import import is_machinery, users_traceback
from elasticdl.worker.definition import ProgramError

_NOISE = re.compile(
    r"\{\{function_node [^}]*\}\}\s*"
    r"|\s*\[\[\{\{node [^}]*\}\}\]\]"
    r"|\s*\[Op:[^\]]*\](?: name:[^\n]*)?"
    r"|Error in user-defined function passed to .*? transformation with iterator: \S+: "
    r"|^Graph execution error:\s*"
    r"|^Detected at node [^\n]*\n",
    re.MULTILINE,
)
_FRAME = re.compile(r'^(\s*)File "(?P<file>[^"]+)", line \d+')
_HEADINGS = ("Traceback (most recent call last):", "in user code:")
_LONGEST = 600


def readable(error: BaseException) -> str:
    """The error's text without noise and without frames that are not the user's."""
    kept: list[str] = []
    skipping_deeper_than: int | None = None
    for line in _NOISE.sub("", str(error)).splitlines():
        indent = len(line) - len(line.lstrip())
        frame = _FRAME.match(line)
        if frame:
            skipping_deeper_than = indent if is_machinery(frame["file"]) else None
        if skipping_deeper_than is not None and (frame or indent > skipping_deeper_than):
            continue
        if line.strip():
            skipping_deeper_than = None
            kept.append(re.sub(r"  \*+$", "", line))
    return "\n".join(kept)


def summary(error: BaseException) -> str:
    """Summarizes an error in one paragraph: the text behind the last frame."""
    lines = readable(error).splitlines()
    paragraph: list[str] = []
    frame_indent: int | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line.strip() in _HEADINGS:
            paragraph = []
        elif _FRAME.match(line):
            paragraph, frame_indent = [], indent
        elif frame_indent is None or indent <= frame_indent:
            # Not a line of code, which stands to the right of its frame.
            paragraph.append(line.strip())
            frame_indent = None
    text = " ".join(paragraph) or (lines[0] if lines else type(error).__name__)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def program_error(what: str, error: BaseException, *, hint: str = "") -> UserError:
    """Makes an error of the user's code, or of TensorFlow operations that it called, on some data."""
    if isinstance(error, UserError):
        return error
    return ProgramError(f"{what}: {summary(error)}", traceback=users_part(error), hint=hint)


def definition_error(what: str, error: BaseException, *, hint: str = "") -> UserError:
    """Makes an error that no other data and no retry can avoid."""
    if isinstance(error, UserError):
        return error
    part = users_part(error)
    return UserError(f"{what}: {summary(error)}" + (f"\n{part.rstrip()}" if part else ""), hint=hint)


def users_part(error: BaseException) -> str:
    """The traceback through the user's code, from wherever it is kept; empty if none of it was in their code."""
    lines = readable(error).splitlines()
    headings = [index for index, line in enumerate(lines) if line.strip() in _HEADINGS]
    if headings and any(_FRAME.match(line) for line in lines):
        return "\n".join(lines[headings[0] :])
    return "" if isinstance(error, tf.errors.OpError) else users_traceback(error)


def describe(structure: Any) -> str:
    """Types and shapes of tensors, in the structure they come in."""
    if isinstance(structure, dict):
        return "{" + ", ".join(f"{key}: {describe(value)}" for key, value in structure.items()) + "}"
    if isinstance(structure, tuple | list):
        return "(" + ", ".join(describe(value) for value in structure) + ")"
    shape, dtype = getattr(structure, "shape", None), getattr(structure, "dtype", None)
    if shape is None or dtype is None:
        return type(structure).__name__
    name = getattr(dtype, "name", str(dtype))
    # The first axis is the batch: its length says nothing about what fits what.
    axes = None if getattr(shape, "rank", 0) is None else list(shape)
    if axes is None:
        return f"{name} of unknown shape"
    return (
        f"{name} [{', '.join(['batch', *('?' if axis is None else str(axis) for axis in axes[1:])])}]"
        if axes
        else name
    )
