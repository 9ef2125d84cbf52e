"""The epochs of a training that have ended, and what the leader's callbacks know of them.

The order at the end of an epoch: a barrier; from its snapshot the checkpoint and the evaluation; then the leader's
callbacks, which may end the training; then the next epoch opens, or the model is exported.
"""

from __future__ import annotations

from typing import Any

# Late workers get all that are kept: some megabytes.
_EPOCHS_KEPT = 10_000


class Epochs:
    def __init__(self) -> None:
        # {"epoch", "metrics", "loss"}, in order.
        self.ended: list[dict[str, Any]] = []
        # The last epoch whose end the leader's callbacks have processed.
        self.processed_epoch = -1
        self.training_over = False
        self._losses: dict[int, tuple[float, int]] = {}

    def add_loss(self, epoch: int, loss_sum: float, batches: int) -> None:
        total, count = self._losses.get(epoch, (0.0, 0))
        self._losses = {epoch: (total + loss_sum, count + batches)}

    def start_at(self, epoch: int) -> None:
        """The training continues in this epoch of a checkpoint."""
        self.processed_epoch = epoch - 1

    def record_end(self, epoch: int, metrics: dict[str, float]) -> None:
        if self.ended and self.ended[-1]["epoch"] >= epoch:
            return
        loss, batches = self._losses.get(epoch, (0.0, 0))
        self.ended.append({"epoch": epoch, "metrics": metrics, "loss": loss / batches if batches else 0.0})
        del self.ended[:-_EPOCHS_KEPT]

    def callbacks_done(self, epoch: int) -> None:
        self.processed_epoch = epoch

    def end_training(self) -> None:
        self.training_over = True

    def learn(self, ended: list[dict[str, Any]]) -> None:
        """Workers remember ends of epochs that a recovering master does not know."""
        self.ended += ended
        self.processed_epoch = max(self.processed_epoch, ended[-1]["epoch"])

    def roll_back(self, *, epoch: int, last_ended: int) -> None:
        """The training continues in `epoch` again; ends of epochs up to `last_ended` stay processed."""
        self.processed_epoch = min(self.processed_epoch, last_ended)
        self.ended = [end for end in self.ended if end["epoch"] < epoch]
        self.training_over = False

    def snapshot(self) -> dict[str, Any]:
        return {
            "epochs_ended": self.ended,
            "processed_epoch": self.processed_epoch,
            "training_over": self.training_over,
            "epoch_loss": [[epoch, loss, count] for epoch, (loss, count) in self._losses.items()],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self.ended = snapshot["epochs_ended"]
        self.processed_epoch = snapshot["processed_epoch"]
        self.training_over = snapshot["training_over"]
        self._losses = {epoch: (loss, count) for epoch, loss, count in snapshot["epoch_loss"]}
