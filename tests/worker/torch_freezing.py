"""A callback of PyTorch that freezes a part of its model by turns, for the tests of its handling."""

from typing import Any


class InTheMiddle:
    """The body is trained in the second epoch and in the last."""

    def set_model(self, model: Any) -> None:
        self.model = model

    def on_train_begin(self, logs: Any) -> None:
        self.model.body.requires_grad_(False)

    def on_epoch_begin(self, epoch: int, logs: Any) -> None:
        self.model.body.requires_grad_(epoch % 2 == 1)
