"""What is remembered of a cut: while everybody comes to a halt, while it is being written, and afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from elasticdl.ps.checkpoint.checkpoints import SavedFile


@dataclass(kw_only=True)
class Cut:
    number: int
    evaluate: bool
    save: bool
    # The last one: gradients that wait for others are not waited with any longer.
    flush: bool = False
    reached: list[str] = field(default_factory=list)
    # What the worker that owns the model wrote: entries of the checkpoint's manifest.
    files: list[SavedFile] = field(default_factory=list)


@dataclass(kw_only=True)
class Saving:
    """A checkpoint that has been cut and is being written."""

    cut: int
    step: int
    epoch: int
    ledger: dict[str, Any]
    files: list[SavedFile] = field(default_factory=list)


@dataclass(kw_only=True)
class SavedModel:
    """The place to go back to when the model is lost."""

    path: str
    step: int
    ledger: dict[str, Any] | None
