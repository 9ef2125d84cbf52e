"""The generation of the model: it grows with every rollback, and whatever belongs to an older one is refused."""

from __future__ import annotations

from typing import Any

from elasticdl.master.commands.checkpoints import SavedCheckpoint


class ModelGeneration:
    def __init__(self) -> None:
        self.number = 1
        # The checkpoint that this generation starts from; empty: none.
        self.restore_from = ""
        self.first_step = 0

    def start_from(self, saved: SavedCheckpoint) -> None:
        self.restore_from = saved.path
        self.first_step = saved.step

    def begin_next(self, saved: SavedCheckpoint | None, *, above: int) -> None:
        """Restores the checkpoint, or begins without one."""
        self.number = max(self.number, above) + 1
        self.restore_from = saved.path if saved else ""
        self.first_step = saved.step if saved else 0

    def snapshot(self) -> dict[str, Any]:
        return {
            "generation": self.number,
            "restore_from": self.restore_from,
            "first_step": self.first_step,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.number = snapshot["generation"]
        self.restore_from = snapshot["restore_from"]
        self.first_step = snapshot["first_step"]
