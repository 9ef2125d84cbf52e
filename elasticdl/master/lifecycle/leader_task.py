"""Tasks of a single worker: process the end of an epoch, export the model, merge predictions."""

from __future__ import annotations

from typing import Any

EXPORT = "export"
MERGE = "merge"
_EPOCH = "epoch-"


class LeaderTask:
    """The task under way, by the name that it has on the wire; empty if there is none."""

    def __init__(self) -> None:
        self.name = ""
        # The output of the job's last task.
        self.result = ""

    def start(self, name: str) -> None:
        self.name = name

    def start_epoch_end(self, epoch: int) -> None:
        self.name = f"{_EPOCH}{epoch}"

    def clear(self) -> None:
        self.name = ""

    def keep_result(self, result: str) -> None:
        self.result = result

    def snapshot(self) -> dict[str, Any]:
        return {"task": self.name, "task_result": self.result}

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.name = snapshot["task"]
        self.result = snapshot["task_result"]


def ended_epoch(task: str) -> int | None:
    """The epoch whose end this task is, if it is one."""
    return int(task.removeprefix(_EPOCH)) if task.startswith(_EPOCH) else None
