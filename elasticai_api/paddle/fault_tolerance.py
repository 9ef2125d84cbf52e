"""Paddle: a training loop whose trainers may join and leave at any moment without losing anything.

    trainer = FaultTolerantTrainer(model, optimizer, service, "/data/model")
    for shard in trainer.shards():
        for features, labels in batches(samples[shard.start : shard.end]):
            loss(model(features), labels).backward()
            optimizer.step()
            optimizer.clear_grad()

All trainers share one state in a folder that all of them can write to: the values of the model, those of the optimizer,
and which shards are in them. After each shard, a trainer adds its changes to the state, under a lock, writes the state
atomically, and only then reports the shard (write-ahead). It continues from the state, with the changes of the others.

Failure modes
    A trainer that dies before the state is written leaves no trace: its shard goes to another trainer. If it dies
    between that and its report, the next trainer with the shard finds it in the state, and only reports it. A trainer
    that starts, whether it is the first or a hundredth, begins with the present state. A state that is being written
    when the process dies is not used. The system releases the lock of a dead process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import paddle

from elasticai_api.common.shards import DataShardService
from elasticai_api.errors import NonFiniteError, ShardError

_STATE, _LOCK = "state.pdstate", "lock"
# Epoch, start and end of samples.
_Range = tuple[int, int, int]


class FaultTolerantTrainer:
    """Hands out shards, and makes what was learned of each of them last before it counts as done.

    Args:
        model: A `paddle.nn.Layer`. It gets the values of the state, if there is one.
        optimizer: Of `paddle.optimizer`, made of the model's parameters.
        service: The shards.
        folder: Where the state is. All trainers of a job must see the same folder.

    Raises:
        elasticai_api.errors.ShardError: The state in the folder is of another model.
        elasticai_api.errors.NonFiniteError: From `shards`: the model has become NaN or infinite. Nothing of that
            shard is added to the state.
    """

    def __init__(self, model: Any, optimizer: Any, service: DataShardService, folder: str | Path) -> None:
        self._model = model
        self._optimizer = optimizer
        self._service = service
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        # That of the state that the model goes on from; the model's own values then.
        self._version = 0
        self._base: dict[str, Any] = {}
        # The samples that this trainer has added to the state and reported since.
        self._reported: list[_Range] = []
        with self._locked():
            state = self._read()
            if state is not None:
                self._load(state)
        self._base = _copied(self._model)

    @property
    def is_restored(self) -> bool:
        """Whether there was a state to go on from."""
        return self._version > 0

    @property
    def version(self) -> int:
        """Shards that are in the state that this trainer goes on from."""
        return self._version

    def shards(self) -> Generator[Any, None, None]:
        """Yields shards to train on, one after the other, until there are no more.

        Asking for the next one means that the model has been trained on the last one.
        """
        while (shard := self._service.fetch_shard()) is not None:
            trained = (self._service.shard_epoch, int(shard.start), int(shard.end))
            if not self._is_in_state(trained):
                yield shard
                self._add(trained)
            self._report(trained)
        self._service.flush()

    def _is_in_state(self, trained: _Range) -> bool:
        """A trainer that died may have added it and not reported it, or not all of it."""
        epoch, start, end = trained
        with self._locked():
            state = self._read()
        for known, first, behind in () if state is None else state["unreported"]:
            if known == epoch and first <= start and end <= behind:
                return True
        return False

    def _add(self, trained: _Range) -> None:
        """Adds what was learned to the state. Raises `NonFiniteError` if the model was spoiled meanwhile."""
        self._check_finite()
        with self._locked():
            state = self._read()
            if state is not None and int(state["version"]) != self._version:
                self._merge(state["model"])
            unreported = [] if state is None else [tuple(each) for each in state["unreported"]]
            left = [list(each) for each in unreported if not _within(each, self._reported)]
            self._version = 1 + (0 if state is None else int(state["version"]))
            self._write(
                {
                    "version": self._version,
                    "model": dict(self._model.state_dict()),
                    "optimizer": self._optimizer.state_dict(),
                    "unreported": [*left, list(trained)],
                }
            )
        self._reported = []
        self._base = _copied(self._model)

    def _check_finite(self) -> None:
        """Raises for non-finite parameters: one trainer's NaN would enter the state of all, and stay there."""
        for name, value in self._model.state_dict().items():
            # Values that were non-finite before, a mask for instance, are no result of training.
            if (
                value.is_floating_point()
                and not bool(paddle.isfinite(value).all())
                and bool(paddle.isfinite(self._base[name]).all())
            ):
                raise NonFiniteError(
                    f"{name} is not finite (NaN or infinity) after training on a shard: the state in {self._folder} is "
                    "left as it is. A smaller learning rate, clipped gradients or other data may help."
                )

    def _report(self, trained: _Range) -> None:
        _, start, end = trained
        if end > start:
            self._service.report_batch_done(end - start)
            # The state says that it is not reported, until the master says that it is.
            self._service.flush()
        self._reported.append(trained)

    @paddle.no_grad()  # type: ignore[untyped-decorator]
    def _merge(self, shared: dict[str, Any]) -> None:
        """Others have gone on: what this trainer has changed is added to what they have."""
        for name, value in self._model.state_dict().items():
            theirs = paddle.to_tensor(shared[name])
            if value.is_floating_point():
                theirs = theirs + (value - self._base[name])
            value.set_value(theirs)

    def _load(self, state: dict[str, Any]) -> None:
        own = self._model.state_dict()
        saved = state["model"]
        different = sorted(
            name
            for name in own.keys() | saved.keys()
            if name not in own or name not in saved or list(own[name].shape) != list(saved[name].shape)
        )
        if different:
            raise ShardError(
                f"The state in {self._folder} is of another model: {', '.join(different[:5])} differ. Use the model "
                "that wrote it, or another folder."
            )
        self._model.set_state_dict(saved)
        self._optimizer.set_state_dict(state["optimizer"])
        self._version = int(state["version"])

    # -- files -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._folder / _LOCK).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, Any] | None:
        path = self._folder / _STATE
        if not path.exists():
            return None
        state: dict[str, Any] = paddle.load(str(path))
        return state

    def _write(self, state: dict[str, Any]) -> None:
        """Whole or not at all: the process may be killed while it writes."""
        new = self._folder / f"{_STATE}.{os.getpid()}.new"
        paddle.save(state, str(new))
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.replace(self._folder / _STATE)


def _copied(model: Any) -> dict[str, Any]:
    return {name: value.clone().detach() for name, value in model.state_dict().items()}


def _within(one: tuple[Any, ...], ranges: list[_Range]) -> bool:
    """Whether all of it is in some of the ranges: a trainer may have got what another one had begun in parts."""
    epoch, start, end = one
    for known, first, behind in sorted(ranges):
        if known == epoch and first <= start < behind:
            start = behind
    return bool(start >= end)
