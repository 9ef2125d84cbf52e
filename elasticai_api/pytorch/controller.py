"""Elastic all-reduce for a training loop of the user's own.

    controller = create_elastic_controller(model=model, optimizer=optimizer, loader=loader, num_epochs=10)
    for epoch in controller.epochs():
        for data, target in epoch:
            optimizer.zero_grad()
            loss = loss_function(model(data), target)
            loss.backward()
            optimizer.step()
        evaluate(model)

The body of the loop is what it would be in one process: `zero_grad` and `step` do nothing by themselves. When the
batches of a step have been computed, by whichever workers there are, their gradients are averaged and the optimizer
steps in all of them. A step is as many batches as the job was started with workers, however many there are at the
moment, so that the training is the same. Without a master the program trains in one process.

The same with a function of one batch, in one loop over all epochs:

    controller = create_elastic_controller(batch_size=64, num_epochs=10, dataset_size=len(dataset), shuffle=True)
    controller.set_broadcast_model(model)
    controller.set_broadcast_optimizer(optimizer)
    train = controller.elastic_run(train_one_batch)
    with controller.scope():
        for data, target in controller.loader(dataset, num_workers=2):
            loss = train(model, optimizer, data, target)
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import threading
import types
from collections.abc import Callable, Generator, Iterator
from typing import Any

import torch

from elasticai_api.common.constants import DefaultDatasetName, PodEnv
from elasticai_api.errors import Drained, ElasticError, NonFiniteError
from elasticai_api.proto import allreduce_pb2 as pb
from elasticai_api.pytorch.devices import AUTO, wanted_backend
from elasticai_api.pytorch.epochs import Epoch
from elasticai_api.pytorch.group import MeetingPoint
from elasticai_api.pytorch.loading import Batches, plan_of
from elasticai_api.pytorch.place import MicroBatch
from elasticai_api.pytorch.replica import ModuleReplica
from elasticai_api.pytorch.solo import Solo
from elasticai_api.pytorch.standings import Line
from elasticai_api.pytorch.team import Team

_NODE = "ELASTICDL_NODE"


def create_elastic_controller(
    batch_size: int | None = None,
    num_epochs: int | None = None,
    dataset_size: int | None = None,
    shuffle: bool = False,
    *,
    model: Any = None,
    optimizer: Any = None,
    scheduler: Any = None,
    loader: Any = None,
    dataset_name: str | None = None,
    backend: str | None = None,
) -> ElasticController:
    """Returns the controller by which a training loop shares its steps with other workers.

    Args:
        batch_size: Samples of one batch; a step has so many batches as the job was started with workers.
        num_epochs: How often the data set is gone through; once, if not given.
        dataset_size: Samples in the data set; if not given, the length of the one that is loaded.
        shuffle: Whether batches come in another order in every epoch.
        model: What all workers train, as by `set_broadcast_model`.
        optimizer: As by `set_broadcast_optimizer`.
        scheduler: A learning-rate schedule that goes by steps, as by `set_broadcast_scheduler`.
        loader: A `DataLoader` with `batch_size` and perhaps `shuffle`: the batches of `epochs()` are made as by it.
        dataset_name: By which all workers mean the same data set.
        backend: "gloo" or "nccl", by which gradients are exchanged; if not given, NCCL where every worker has its model
            on a GPU of its own.

    Raises:
        elasticai_api.errors.ElasticError: A value is missing or out of range, or the loader cannot be shared.

    Example:
        >>> controller = create_elastic_controller(model=model, optimizer=optimizer, loader=loader, num_epochs=10)
    """
    plan = None
    if loader is not None:
        if batch_size is not None or dataset_size is not None or shuffle:
            raise ElasticError(
                "Give the loader, or batch_size, dataset_size and shuffle: the loader says them too."
            )
        plan = plan_of(loader)
        batch_size, dataset_size, shuffle = plan.batch_size, plan.size, plan.shuffle
    if batch_size is None:
        raise ElasticError("Give the batch_size, or a loader that has one.")
    controller = ElasticController(
        batch_size=batch_size,
        num_epochs=1 if num_epochs is None else num_epochs,
        dataset_size=dataset_size,
        shuffle=shuffle,
        dataset_name=dataset_name or DefaultDatasetName.TRAINING,
        backend=wanted_backend(backend, os.environ),
    )
    if plan is not None:
        controller.load(plan.dataset, **plan.options)
    if model is not None:
        controller.set_broadcast_model(model)
    if optimizer is not None:
        controller.set_broadcast_optimizer(optimizer)
    if scheduler is not None:
        controller.set_broadcast_scheduler(scheduler)
    return controller


class ElasticController:
    def __init__(
        self,
        *,
        batch_size: int,
        num_epochs: int,
        dataset_size: int | None,
        shuffle: bool,
        dataset_name: str,
        backend: str = AUTO,
    ) -> None:
        for name, value in (
            ("batch_size", batch_size),
            ("num_epochs", num_epochs),
            ("dataset_size", dataset_size),
        ):
            if value is not None and value < 1:
                raise ElasticError(f"{name} must be at least 1, not {value}.")
        self._batch_size = batch_size
        self._epochs = num_epochs
        self._size = dataset_size
        self._shuffle = shuffle
        self._name = dataset_name
        self._backend = backend
        self._model: Any = None
        self._optimizer: Any = None
        self._schedulers: list[Any] = []
        self._before_step: list[Callable[[], object]] = []
        self._line: Line | None = None
        self._meeting: MeetingPoint | None = None
        # One for all teams: what is trained is settled once.
        self._replica: _ProgramReplica | None = None
        self._team: Team | Solo | None = None
        self._reports = 0
        self._current: MicroBatch | None = None
        # The source of the batches of `epochs()`.
        self._batches: Batches | None = None
        # Whether the batch in hand is done when the optimizer steps, and not when a function returns.
        self._loops = False
        self._loss: float | None = None
        self._is_drained = False
        self._changed = threading.Event()
        # Whether this worker was the first, once the training is closed.
        self._was_first: bool | None = None

    # -- what is trained -------------------------------------------------------------------------------------

    def set_broadcast_model(self, model: Any) -> None:
        """The model that all workers train: new members get its values from present ones."""
        self._model = model
        model.zero_grad = _ignore

    def set_broadcast_optimizer(self, optimizer: Any) -> None:
        """Shares the state of an optimizer like the model. It now steps when a step of all workers is complete."""
        if isinstance(optimizer, torch.optim.LBFGS):
            raise ElasticError(
                "LBFGS computes the loss several times a step, which workers that share one can't do."
            )
        self._optimizer = _SteppedByTeam(optimizer)

        def step(optimizer: Any, closure: Callable[[], Any] | None = None) -> Any:
            """Replaces the optimizer's step, which is made when all gradients are there."""
            result = closure() if closure is not None else None
            optimizer._opt_called = True
            if self._loops:
                self.report_loss(result)
                self.finish_batch()
            return result

        # A method, known to schedules as one that they have marked: they would warn of one made after them.
        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
        optimizer.step = types.MethodType(step, optimizer)
        optimizer.zero_grad = _ignore

    def set_broadcast_scheduler(self, scheduler: Any) -> None:
        """A learning-rate schedule that goes by steps: it is stepped after the optimizer, in all workers alike.

        The program's own calls of its `step` do nothing from now on.
        """
        self._schedulers.append(_SteppedByTeam(scheduler))
        scheduler.step = _ignore

    def before_step(self, function: Callable[[], object]) -> None:
        """Called with the averaged gradients of a step in place, before the optimizer uses them: to clip them, say."""
        self._before_step.append(function)

    # -- training --------------------------------------------------------------------------------------------

    def load(self, dataset: Any, **options: Any) -> None:
        """Names the map-style data set of `epochs()`. Options are those of `loader`."""
        if self._size is None:
            self._size = len(dataset)
        self._batches = Batches(dataset, **options)

    def epochs(self) -> Generator[Epoch, None, None]:
        """Yields the epochs of the training, each of which yields the batches that this worker has to compute.

        What follows the inner loop runs once an epoch, in every worker, with the same model in all of them. At the end
        the others and the master know what this worker has done.

        Raises:
            elasticai_api.errors.Drained: This worker is drained. Ends the program with exit code 0.
            elasticai_api.errors.ElasticError: The inner loop was left early.

        Example:
            >>> for epoch in controller.epochs():
            ...     for data, target in epoch:
            ...         train_one_batch(model, optimizer, data, target)
            ...     if controller.first:
            ...         torch.save(model.state_dict(), f"model-{epoch.number}.pt")
        """
        try:
            while (epoch := self.next_epoch()) is not None:
                yield epoch
                if self.get_current_epoch() <= epoch.number and not self.is_over:
                    raise ElasticError(
                        f"The loop over epoch {epoch.number} was left before its end; the rest of it would not be "
                        "trained. Let it end by itself."
                    )
        finally:
            self._loops = False
            self.close()

    def next_epoch(self) -> Epoch | None:
        """The epoch that is trained now; None at the end of the training. Waits for the other workers.

        For frameworks with loops of their own; `epochs()` is for programs.

        Raises:
            elasticai_api.errors.Drained: This worker is drained.
        """
        self._loops = True
        micro = self.begin_batch()
        if micro is None and self._is_drained:
            self.close()
            raise Drained
        return None if micro is None else Epoch(self, micro.epoch)

    def epoch_batches(self, epoch: Epoch) -> Iterator[Any]:
        """The batches of one epoch, for `for batch in epoch`."""
        if self._batches is None:
            raise ElasticError(
                "There is no data set: give create_elastic_controller a loader, or call controller.load(dataset)."
            )
        while (micro := self.begin_batch()) is not None and micro.epoch <= epoch.number:
            epoch.number = micro.epoch
            yield self.batch_of(micro)
        if micro is None and self._is_drained:
            self.close()
            raise Drained

    def begin_batch(self) -> MicroBatch | None:
        """Returns the micro-batch that this worker computes next; None at the end of the training, or when it is
        drained.

        What was computed before counts as trained by now.
        """
        self.finish_batch()
        return self._next()

    def batch_of(self, micro: MicroBatch) -> Any:
        """Reads a batch, and expects that its gradients are computed next."""
        assert self._team is not None
        assert self._batches is not None
        batch = self._batches.of(self._team, micro)
        _seed(micro)
        self._team.expect(micro.samples)
        self._current, self._loss = micro, None
        return batch

    def finish_batch(self) -> None:
        """The gradients of the batch in hand (if any) are computed. With a step's last one the optimizer steps."""
        micro, self._current = self._current, None
        if micro is not None and self._team is not None:
            self._team.done(micro.samples, math.nan if self._loss is None else self._loss)

    def report_loss(self, loss: Any) -> None:
        """Reports the loss of the present batch for the job's status: a number, or a tensor with one."""
        if loss is not None:
            self._loss = _loss_of(loss)

    def elastic_run(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The training function of one batch, made to share its gradients. To be called once a batch."""

        def run(*arguments: Any, **keywords: Any) -> Any:
            team, micro = self._team, self._current
            if team is None or micro is None:
                raise ElasticError(
                    "The function of elastic_run is to be called once for each batch of controller.loader(...)."
                )
            _seed(micro)
            team.expect(micro.samples)
            result = function(*arguments, **keywords)
            self._current = None
            team.done(micro.samples, _loss_of(result))
            return result

        return run

    def loader(self, dataset: Any, **options: Any) -> Iterator[Any]:
        """The batches of a map-style data set that this worker has to compute, of all epochs. Options are those of
        `torch.utils.data.DataLoader`: `num_workers`, `collate_fn`, `pin_memory` and so on.
        """
        if self._size is None:
            self._size = len(dataset)
        batches = Batches(dataset, **options)
        while (micro := self._next()) is not None:
            assert self._team is not None
            batch = batches.of(self._team, micro)
            self._current = micro
            yield batch
            if self._current is micro:
                raise ElasticError(
                    "A batch of the loader was not trained: call the function of elastic_run on it."
                )

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Around the training: at its end the others and the master know what this worker has done."""
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        if self._was_first is None:
            self._was_first = self.first
        team, self._team = self._team, None
        if isinstance(team, Team):
            if not team.over:
                team.flush()
                team.leave()
            team.close()
        if self._line is not None:
            self._line.close()
            self._line = None

    def finish(self) -> None:
        """Closes the controller, for loops that may stop by themselves: to stop before the last epoch is an error in a
        job.

        Raises:
            elasticai_api.errors.ElasticError: The loop was stopped early. The job would miss the rest of the samples.
        """
        stopped = isinstance(self._team, Team) and not self.is_over
        self.close()
        if stopped:
            raise ElasticError(
                "The loop was stopped before its last epoch (early stopping, max_time or the like), and the job "
                "expects every sample of every epoch. Give fewer epochs, and keep the best of the checkpoints."
            )

    # -- where it is -----------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Steps of the optimizer so far, by all workers together."""
        return self._team.place.step if self._team is not None and self._team.place is not None else 0

    @property
    def last_loss(self) -> float | None:
        """The mean loss of the last step, over all workers; None if the program does not report it."""
        loss = self._team.last_loss if self._team is not None else None
        return None if loss is None or math.isnan(loss) else loss

    @property
    def first(self) -> bool:
        """This worker is the oldest that has the trained model: the one that should write checkpoints and the like.
        False in a worker that has not received the state of the training; after the training, what it was at its end.
        """
        if self._team is not None:
            return self._team.first
        return not os.environ.get(PodEnv.MASTER_ADDR) if self._was_first is None else self._was_first

    @property
    def is_drained(self) -> bool:
        """This worker is drained: it gets no more batches, though the training goes on."""
        return self._is_drained

    @property
    def is_over(self) -> bool:
        """This worker has nothing more to train."""
        team = self._team
        return team is None or team.complete or self._is_drained or (isinstance(team, Team) and team.over)

    @property
    def members(self) -> tuple[str, ...]:
        """The workers that train together at the moment, the oldest first."""
        return self._team.members if self._team is not None else ()

    def get_current_epoch(self) -> int:
        return self._team.place.epoch if self._team is not None and self._team.place is not None else 0

    def get_minibatch_count_per_epoch(self) -> int:
        if self._size is None:
            raise ElasticError("The size of the data set is not known yet.")
        return -(-self._size // self._batch_size)

    @property
    def progress(self) -> float:
        """Epochs done so far, with the part of the current one."""
        if self._team is None or self._team.place is None or self._size is None:
            return 0.0
        place = self._team.place
        return place.epoch + place.at / self.get_minibatch_count_per_epoch()

    @property
    def steps_per_epoch(self) -> int:
        """Steps of the optimizer in an epoch, by all workers together."""
        return -(-self.get_minibatch_count_per_epoch() // self._per_step())

    # -- inside ----------------------------------------------------------------------------------------------

    def _per_step(self) -> int:
        """Batches of a step."""
        team = self._team or self._begin()
        return team.standing().per_step if isinstance(team, Team) else team.per_step

    def _next(self) -> MicroBatch | None:
        while True:
            team = self._team or self._begin()
            self._changed.clear()
            if isinstance(team, Team) and team.between_steps and team.standing().leaving:
                # For the program that is the end of the data.
                self._is_drained = True
                return None
            micro = team.next()
            if micro is not None:
                return micro
            if team.complete or not isinstance(team, Team) or team.standing().finished or team.superfluous:
                return None
            if team.over:
                # All who had the state of the training are gone: it begins again.
                self._reports = team.close()
                self._team = None
                continue
            self._changed.wait()

    def _begin(self) -> Team | Solo:
        if self._model is None or self._optimizer is None:
            raise ElasticError("Call set_broadcast_model and set_broadcast_optimizer before the training.")
        assert self._size is not None
        if self._replica is None:
            self._replica = _ProgramReplica(self._model, self._optimizer, self._schedulers, self._before_step)
        replica = self._replica
        if not os.environ.get(PodEnv.MASTER_ADDR):
            self._team = Solo(
                replica=replica,
                size=self._size,
                batch_size=self._batch_size,
                epochs=self._epochs,
                per_step=int(os.environ.get(PodEnv.WORKER_NUM) or 1),
                shuffle=self._shuffle,
            )
            return self._team
        # An optimizer's first step loads this, which takes a second: before the others wait for this worker.
        importlib.import_module("torch._dynamo")
        line = self._open_line()
        if self._meeting is None:
            self._meeting = MeetingPoint(os.environ.get("MY_POD_IP") or "127.0.0.1")
        self._team = Team(
            line=line,
            meeting=self._meeting,
            dataset=self._name,
            generation=line.call(line.stub.Open, self._announcement()).generation,
            replica=replica,
            changed=self._changed.set,
            first_report=self._reports,
            backend=self._backend,
        )
        return self._team

    def _open_line(self) -> Line:
        if self._line is None:
            worker = os.environ.get(_NODE) or "-".join(
                (os.environ.get(PodEnv.WORKER_TYPE) or "worker", os.environ.get(PodEnv.WORKER_ID) or "0")
            )
            self._line = Line.of_file(
                address=os.environ[PodEnv.MASTER_ADDR],
                token_file=os.environ[PodEnv.TOKEN_FILE],
                worker=worker,
            )
        return self._line

    def _announcement(self) -> pb.OpenRequest:
        assert self._line is not None
        return pb.OpenRequest(
            worker=self._line.worker,
            dataset=self._name,
            size=self._size,
            batch_size=self._batch_size,
            epochs=self._epochs,
            shuffle=self._shuffle,
        )


class _ProgramReplica(ModuleReplica):
    """The program's model and optimizer, and what else goes by steps."""

    def __init__(
        self, model: Any, optimizer: Any, schedulers: list[Any], before_step: list[Callable[[], object]]
    ) -> None:
        super().__init__(model, optimizer)
        self._schedulers = schedulers
        self._before_step = before_step

    def apply(self) -> None:
        for function in self._before_step:
            function()
        self._check_gradients()
        super().apply()
        for scheduler in self._schedulers:
            scheduler.step()

    def _check_gradients(self) -> None:
        """The same in all workers: none of them goes on with a model that is spoiled."""
        for name, parameter in self._model.named_parameters():
            gradient = parameter.grad
            if gradient is None:
                continue
            values = gradient.coalesce().values() if gradient.is_sparse else gradient
            # A NaN or an infinity is in the sum, too, which costs less. It may overflow without one.
            if not torch.isfinite(values.sum()) and not torch.isfinite(values).all():
                raise NonFiniteError(
                    f"The averaged gradient of {name} is not finite (NaN or infinity): the step is not made. A smaller "
                    "learning rate, clipped gradients or other data may help. A function for controller.before_step "
                    "can change the gradients before they are checked."
                )

    def read(self) -> tuple[dict[str, Any], Any]:
        tensors, rest = super().read()
        counts = [scheduler.state_dict() for scheduler in self._schedulers]
        return tensors, {
            **rest,
            "schedulers": [
                {k: v for k, v in state.items() if isinstance(v, (bool, int, float, list)) or v is None}
                for state in counts
            ],
        }

    def write(self, tensors: dict[str, Any], rest: Any) -> None:
        super().write(tensors, rest)
        for scheduler, state in zip(self._schedulers, rest["schedulers"], strict=True):
            scheduler.load_state_dict({**scheduler.state_dict(), **state})


class _SteppedByTeam:
    """The optimizer or schedule as it was before the program's own calls of it were made to do nothing."""

    def __init__(self, stepped: Any) -> None:
        self._step = stepped.step
        self.state_dict = stepped.state_dict
        self.load_state_dict = stepped.load_state_dict

    def step(self) -> None:
        self._step()


def _ignore(*arguments: object, **keywords: object) -> None:
    """Replaces calls that would reset the sums of a step that is not complete."""


def _seed(micro: MicroBatch) -> None:
    """Dropout and the like depend on what is computed, not on who computes it."""
    torch.manual_seed(hash((micro.epoch, micro.place)) & (2**63 - 1))


def _loss_of(result: Any) -> float:
    """Returns the value of the training function if it is a loss, for the job's status."""
    if isinstance(result, (tuple, list)) and result:
        result = result[0]
    if isinstance(result, torch.Tensor) and result.numel() == 1:
        return float(result.detach())
    return float(result) if isinstance(result, (int, float)) else 0.0
