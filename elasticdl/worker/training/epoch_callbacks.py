"""When a worker's callbacks hear of epochs.

Epochs are the master's: other workers may have trained all of one. Callbacks hear of every epoch all the same, in
order, since learning rates change from one to the next. A worker that begins late catches up on the past.
"""

from __future__ import annotations

from elasticdl.wire import master_pb2 as pb
from elasticdl.worker.master_link import MasterLink
from elasticdl.worker.reporter import Reporter
from elasticdl.worker.trainer import CallbackRunner, EndedEpoch, Trainer


class EpochCallbacks:
    """`epochs`: how many the job has."""

    def __init__(self, link: MasterLink, trainer: Trainer, reporter: Reporter, *, epochs: int) -> None:
        self._link = link
        self._trainer = trainer
        self._reporter = reporter
        self._epochs = epochs
        self._runner: CallbackRunner | None = None
        # The epoch that callbacks are in, and the last whose end was reported to them.
        self._epoch = -1
        self._last_ended = -1

    @property
    def is_started(self) -> bool:
        return self._runner is not None

    @property
    def stop_training(self) -> bool:
        return self._runner is not None and self._runner.stop_training

    def runner(self, directive: pb.Directive) -> CallbackRunner:
        """Makes the callbacks when they are first needed."""
        if self._runner is None:
            self._runner = self._trainer.callbacks(
                leader=directive.leader, epochs=self._epochs, resumed=bool(directive.epochs_ended)
            )
            self._runner.fire("on_train_begin", {})
        return self._runner

    def start_for_ended(self, directive: pb.Directive) -> None:
        """The leader's callbacks hear of the end of an epoch even if others have trained all of it."""
        self.runner(directive)
        self._last_ended = max(self._last_ended, directive.epochs_ended[-1].epoch - 1)

    def begin_epoch(self, epoch: int, runner: CallbackRunner) -> None:
        """Begins an epoch, unless the callbacks are in this epoch, or in a later one."""
        if epoch <= self._epoch:
            return
        if self._epoch < 0 < epoch and not runner.empty:
            # This worker begins late: its callbacks are to know what those of the others know.
            history = self._link.call(self._link.stub.History, pb.HistoryRequest())
            ended = [
                EndedEpoch(epoch=one.epoch, logs=_logs(one)) for one in history.epochs if one.epoch < epoch
            ]
            runner.catch_up(ended, epoch)
        else:
            runner.fire("on_epoch_begin", epoch, {})
        self._last_ended = max(self._last_ended, epoch - 1)
        self._epoch = epoch

    def end_epochs(self, directive: pb.Directive) -> None:
        """Reports the end of epochs that are over, once each."""
        for ended in directive.epochs_ended:
            if ended.epoch <= self._last_ended:
                continue
            self._last_ended = ended.epoch
            if self._runner is None:
                continue
            # A worker that came to no batch of it: rates that change from epoch to epoch must not miss one.
            self.begin_epoch(ended.epoch, self._runner)
            self._runner.fire("on_epoch_end", ended.epoch, _logs(ended))
            if self._runner.stop_training:
                self._reporter.ask_to_stop()
                self._reporter.flush()

    def finish(self) -> None:
        if self._runner is not None:
            self._runner.fire("on_train_end", {})


def _logs(ended: pb.EpochEnd) -> dict[str, float]:
    return {"loss": ended.loss} | {f"val_{name}": value for name, value in ended.metrics.items()}
