"""A worker that trains a model definition in PyTorch by all-reduce: every worker has the whole model.

The core is `elasticai_api.pytorch.team`, which knows rounds, steps and gradients; the loop around it is the one of all
workers (`training_loop.py`). Between two batches there is nothing to listen to here: every request of the master (a
checkpoint, an evaluation, the report of an epoch's end) is for the barrier where the training halts, at the same step
for all, which the members agree on among themselves. The first of them writes the checkpoint.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from elasticai_api.proto import allreduce_pb2
from elasticai_api.pytorch.devices import wanted_backend
from elasticai_api.pytorch.group import MeetingPoint
from elasticai_api.pytorch.place import MicroBatch
from elasticai_api.pytorch.standings import Line
from elasticai_api.pytorch.team import Team
from elasticdl.data.reader import BadRange, Reader
from elasticdl.errors import UserError
from elasticdl.jobs.mode import Mode
from elasticdl.wire import master_pb2 as pb
from elasticdl.worker.model.model_store import LocalModel, non_finite_batch, restore
from elasticdl.worker.torch.trainer import TorchTrainer
from elasticdl.worker.trainer import Batch, Parameters, Shard, Trainer
from elasticdl.worker.training.training_loop import TrainingLoop

log = logging.getLogger("elasticdl.worker")

_DATASET = "training"
_TRAINABLE, _STATE, _OPTIMIZER = "trainable/", "state/", "optimizer/"


def check_tables(trainer: Trainer) -> None:
    """Raises `UserError` if a model has rows that are in no worker's gradients: each would train rows of its own."""
    assert isinstance(trainer, TorchTrainer)
    tables = trainer.table_places
    if tables:
        raise UserError(
            f"Embeddings of the model have tables ({', '.join(tables)}), which AllreduceStrategy cannot train: every "
            "worker would have rows of its own.",
            hint="Train with --distribution_strategy=ParameterServerStrategy, or use torch.nn.Embedding.",
        )


class AllReduceLoop(TrainingLoop):
    def __init__(self, *, token: str, **parts: Any) -> None:
        super().__init__(token=token, **parts)
        trainer = self._trainer
        assert isinstance(trainer, TorchTrainer)
        self._torch = trainer
        self._line = Line(address=os.environ["MASTER_ADDR"], token=token, worker=self._link.node)
        self._meeting = MeetingPoint(os.environ.get("MY_POD_IP") or "127.0.0.1")
        self._team: Team | None = None
        self._ahead: _Ahead | None = None
        self._reports = 0
        # There is a new standing to look at.
        self._news = False
        # Before the step that is being computed.
        self._state_before: dict[str, Any] | None = None

    def _step(self) -> bool:
        """Computes a micro-batch, or does one thing that is asked for. False when it was the last."""
        self._news = False
        serial, directive = self._link.latest()
        if directive.generation != self._generation and not directive.finished and not directive.drain:
            self._start_generation(directive)
        team = self._team
        if team is None or directive.finished or (directive.drain and self._may_leave(team)):
            self._leave(directive)
            return False
        micro = team.next()
        if micro is not None:
            self._compute(team, micro)
        elif not self._answer(directive, serial):
            seen = self._link.serial if self._link.latest()[0] == serial else -1
            self._link.wait(lambda: self._news or self._link.serial != seen)
        return True

    def _may_leave(self, team: Team) -> bool:
        return team.between_steps or not team.members

    def _changed(self) -> None:
        self._news = True
        self._link.nudge()

    # -- what directives ask for -----------------------------------------------------------------------------

    def _answer(self, directive: pb.Directive, serial: int) -> bool:
        """Does one thing that is asked for where the training halts. False if there is nothing."""
        team = self._team
        assert team is not None
        if not team.halted or team.place is None:
            return False
        if directive.barrier_requested > max(self._barrier, directive.barrier_passed) and team.first:
            self._reach_barrier(directive)
            return True
        if self._done_serial == serial:
            return False
        self._done_serial = serial
        if directive.task and directive.task != "export":
            self._start_callbacks(directive)
        self._callbacks.end_epochs(directive)
        if (
            directive.evaluation
            and directive.evaluation_step == team.place.step
            and self._validation is not None
        ):
            self._evaluate(directive)
            return True
        if directive.evaluation_to_finish and self._evaluator.finish(directive, self._trainer):
            return True
        if directive.task == "export":
            self._export()
        elif directive.task:
            self._finish_task(directive.task, "stop" if self._callbacks.stop_training else "")
        return False

    def _start_generation(self, directive: pb.Directive) -> None:
        self._close_team()
        self._generation = directive.generation
        self._reporter.start_generation(directive.generation)
        self._barrier = directive.barrier_passed
        self._done_serial = -1
        model = _ReplicatedModel(self._trainer)
        self._model = model
        self._make_ready()
        self._warm_up()
        self._team = model.team = Team(
            line=self._line,
            meeting=self._meeting,
            dataset=_DATASET,
            generation=directive.generation,
            replica=_TrainerReplica(self, model),
            wants_pause=self._wanted_pause,
            pause_is_over=self._pause_is_over,
            interrupted=self._interrupted,
            changed=self._changed,
            first_report=self._reports,
            backend=wanted_backend(None, os.environ),
        )

    def _warm_up(self) -> None:
        """Does slow initial work before the others wait for this worker."""
        # An optimizer's first step loads this, which takes a second.
        importlib.import_module("torch._dynamo")
        self._torch.optimizer_state()

    def _wanted_pause(self) -> int:
        directive = self._link.directive()
        wanted: int = directive.barrier_requested
        return wanted if wanted > directive.barrier_passed else 0

    def _pause_is_over(self, number: int) -> bool:
        directive = self._link.directive()
        return directive.barrier_passed >= number and not directive.evaluation_step

    def _interrupted(self) -> bool:
        directive = self._link.directive()
        leaving = directive.drain and (self._team is None or self._team.between_steps)
        return directive.finished or leaving

    def _reach_barrier(self, directive: pb.Directive) -> None:
        assert self._team is not None
        self._team.flush()
        super()._reach_barrier(directive)

    def _between_evaluation_batches(self) -> bool:
        directive = self._link.directive()
        if directive.finished or directive.drain or directive.generation != self._generation:
            return False
        wanted = directive.barrier_requested > max(self._barrier, directive.barrier_passed)
        if wanted and self._team is not None and self._team.first:
            self._reach_barrier(directive)
        return True

    def _leave(self, directive: pb.Directive) -> None:
        if self._team is not None and not directive.finished:
            self._team.leave()
        self._close_team()
        self._line.close()
        super()._leave(directive)

    def _close_team(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
        self._ahead = None
        if self._team is not None:
            self._reports = self._team.close()
        self._team = None

    # -- training --------------------------------------------------------------------------------------------

    def _compute(self, team: Team, micro: MicroBatch) -> None:
        # Parameters that callbacks freeze at the begin of an epoch have no gradients, and unfrozen ones have some.
        self._callbacks.begin_epoch(micro.epoch, self._callbacks.runner(self._link.directive()))
        samples, loss = 0, 0.0
        bad: tuple[BadRange, ...] = ()
        # Dropout and the like depend on what is computed, not on who computes it.
        torch.manual_seed(hash((self._spec.data.shuffle_seed, micro.epoch, micro.place)) & (2**63 - 1))
        for batch in self._batches_of(team, micro):
            bad += batch.bad
            if batch.size:
                self._prepare(batch)
                team.expect(batch.size, last=batch.last)
                loss += self._accumulate(batch) * batch.size
                samples += batch.size
        unreadable = [
            allreduce_pb2.Unreadable(start=b.start, end=b.end, where=b.where, reason=b.reason) for b in bad
        ]
        team.done(samples, loss / samples if samples else 0.0, unreadable)

    def _accumulate(self, batch: Batch) -> float:
        allowed = self._spec.training.max_bad_gradients
        if allowed and self._state_before is None:
            self._state_before = self._trainer.state()
        loss = self._torch.accumulate(batch)
        if not math.isfinite(loss):
            if not allowed:
                # Before the exchange: the other members keep their model.
                raise non_finite_batch(f"a batch that ends at sample {batch.position:,}", allowed=0)
            # All members then see that the step is to be skipped.
            self._torch.spoil_gradients()
        return loss

    def apply(self) -> None:
        """A step with the gradients of all members. They are the same in all, and so is the decision to skip it."""
        self.begin_step()
        if self._torch.gradients_are_finite():
            self._torch.apply()
        else:
            self._skip_step()
        self._state_before = None
        self.end_step()

    def _skip_step(self) -> None:
        assert self._team is not None
        assert self._team.place is not None
        allowed = self._spec.training.max_bad_gradients
        step = self._team.place.step + 1
        assert self._model is not None
        if self._model.skipped_batches >= allowed:
            raise non_finite_batch(f"step {step:,}", allowed=allowed)
        self._model.skipped_batches += 1
        self._reporter.note_skipped(self._model.skipped_batches)
        if self._state_before is not None:
            values = self._trainer.parameters()
            self._trainer.set_parameters(Parameters(trainable=values.trainable, state=self._state_before))
        log.warning(
            "Skipping step %d: its gradients are not finite (NaN or infinity). Skipped so far: %d.",
            step,
            self._model.skipped_batches,
        )

    def _batches_of(self, team: Team, micro: MicroBatch) -> list[Batch]:
        if self._ahead is None or self._ahead.version != team.version or not self._ahead.comes_to(micro):
            if self._ahead is not None:
                self._ahead.close()
            self._ahead = _Ahead(
                self._trainer,
                self._training,
                team,
                batch_size=self._spec.training.minibatch_size,
                max_bad_records=self._spec.data.max_bad_records,
            )
            if not self._ahead.comes_to(micro):
                raise RuntimeError(f"micro-batch {micro.place} of epoch {micro.epoch} was not to be expected")
        return self._ahead.take()

    def begin_step(self) -> None:
        """Callbacks hear of a step where its gradients are known: in every worker, whatever it had to compute of it; of
        an epoch, too, if it had nothing to compute of it.
        """
        assert self._team is not None
        assert self._team.place is not None
        callbacks = self._callbacks.runner(self._link.directive())
        self._callbacks.begin_epoch(self._team.place.epoch, callbacks)
        callbacks.fire("on_train_batch_begin", self._team.place.step, {})

    def end_step(self) -> None:
        team = self._team
        assert team is not None
        assert team.place is not None
        callbacks = self._callbacks.runner(self._link.directive())
        callbacks.fire("on_train_batch_end", team.place.step, {"loss": team.last_loss})
        if team.last_loss is not None and math.isfinite(team.last_loss):
            self._loss_log.add(team.place.step + 1, team.last_loss)
        if callbacks.stop_training:
            team.ask_to_stop()


class _ReplicatedModel(LocalModel):
    """The model of a worker that gets its values from the others, or from a checkpoint if it is the first of all."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__(trainer, restore_from="", first_step=0)
        self.team: Team | None = None

    def prepare(self, batch: Batch) -> None:
        self._trainer.build(batch)
        if self._trainer.tables:
            raise UserError(
                "The model has embeddings whose rows are in tables, and all-reduce has no servers for their rows.",
                hint="Train it with --distribution_strategy=ParameterServerStrategy, or use torch.nn.Embedding.",
            )
        super().prepare(batch)

    @property
    def step(self) -> int:
        return self.team.place.step if self.team is not None and self.team.place is not None else 0


class _TrainerReplica:
    """A trainer as the core of all-reduce sees it."""

    def __init__(self, loop: AllReduceLoop, model: _ReplicatedModel) -> None:
        self._loop = loop
        self._model = model
        self._trainer = loop._torch

    def start(self, restore_from: str) -> None:
        if restore_from:
            self._model.skipped_batches = restore(self._trainer, restore_from)

    def parameters(self) -> list[Any]:
        return self._trainer.shared_parameters()

    def buffers(self) -> list[Any]:
        return self._trainer.shared_buffers()

    def read(self) -> tuple[dict[str, Any], Any]:
        values = self._trainer.parameters()
        groups = (
            (_TRAINABLE, values.trainable),
            (_STATE, values.state),
            (_OPTIMIZER, self._trainer.optimizer_state()),
        )
        return {
            prefix + name: torch.from_numpy(np.array(array))
            for prefix, group in groups
            for name, array in group.items()
        }, self._model.skipped_batches

    def write(self, tensors: dict[str, Any], rest: Any) -> None:
        def group(prefix: str) -> dict[str, Any]:
            return {
                name.removeprefix(prefix): tensor.numpy()
                for name, tensor in tensors.items()
                if name.startswith(prefix)
            }

        self._trainer.set_parameters(Parameters(trainable=group(_TRAINABLE), state=group(_STATE)))
        self._trainer.set_optimizer_state(group(_OPTIMIZER))
        self._model.skipped_batches = rest

    def apply(self) -> None:
        self._loop.apply()


class _Ahead:
    """The batches of the micro-batches that this worker will probably compute next, read in the background."""

    def __init__(
        self, trainer: Trainer, reader: Reader, team: Team, *, batch_size: int, max_bad_records: int
    ) -> None:
        self.version = team.version
        self._batches = trainer.batches(
            reader,
            _shards(team, self.version),
            mode=Mode.TRAINING,
            batch_size=batch_size,
            max_bad_records=max_bad_records,
        )
        self._next: Batch | None = None

    def comes_to(self, micro: MicroBatch) -> bool:
        """The next batches are those of this micro-batch."""
        self._next = self._next or next(self._batches, None)
        if self._next is None:
            return False
        shard = self._next.shard
        return (shard.epoch, shard.lease_id, shard.start) == (micro.epoch, micro.place, micro.start)

    def take(self) -> list[Batch]:
        assert self._next is not None
        batches, self._next = [self._next], None
        while not batches[-1].last:
            batches.append(next(self._batches))
        return batches

    def close(self) -> None:
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()


def _shards(team: Team, version: int) -> Iterator[Shard]:
    for micro in team.upcoming(version):
        yield Shard(lease_id=micro.place, epoch=micro.epoch, start=micro.start, end=micro.end)
