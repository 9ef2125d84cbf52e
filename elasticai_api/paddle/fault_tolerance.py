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

A trainer that was cut off (frozen, or on a machine that cannot be reached) and replaced is fenced: it adds nothing any
more of a shard that was leased to another trainer (shard_fence.py), and goes on from the state without it.

Failure modes
    A trainer that dies before the state is written leaves no trace: its shard goes to another trainer. If it dies
    between that and its report, or loses its lease there, the next trainer with the shard finds it in the state, and
    only reports it. A trainer that starts, whether it is the first or a hundredth, begins with the present state. A
    state that is being written when the process dies is not used. The system releases the lock of a dead process.
    A file server may take the lock from a machine that it cannot reach. A trainer there finds, before it replaces the
    state, that others have done so, and adds its shard to theirs.
    A trainer loses its shard before there is a state: it has nothing to go on from, and ends with `ShardError`.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import uuid
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import paddle

from elasticai_api.common.constants import PodEnv
from elasticai_api.common.shards import DataShardService
from elasticai_api.errors import NonFiniteError, ShardError
from elasticai_api.paddle.shard_fence import MOST_OF_OTHER_JOBS, Lease, ShardFence, Span
from elasticai_api.proto import elasticai_api_pb2 as pb

log = logging.getLogger("elasticai_api")

_STATE, _LOCK = "state.pdstate", "lock"


class FaultTolerantTrainer:
    """Hands out shards, and makes what was learned of each of them last before it counts as done.

    Args:
        model: A `paddle.nn.Layer`. It gets the values of the state, if there is one.
        optimizer: Of `paddle.optimizer`, made of the model's parameters.
        service: The shards.
        folder: Where the state is. All trainers of a job must see the same folder.

    Raises:
        elasticai_api.errors.ShardError: The state in the folder is of another model. Or the program has no token of
            the job, without which a trainer that was replaced cannot be fenced. From `shards`: the shard was leased to
            another trainer before there was a state to go on from.
        elasticai_api.errors.NonFiniteError: From `shards`: the model has become NaN or infinite. Nothing of that
            shard is added to the state.
    """

    def __init__(self, model: Any, optimizer: Any, service: DataShardService, folder: str | Path) -> None:
        self._model = model
        self._optimizer = optimizer
        self._service = service
        self._folder = Path(folder)
        if not service.ledger_id:
            raise ShardError(
                "FaultTolerantTrainer needs the job's token: without it a trainer that was replaced cannot be kept "
                f"from adding its shard a second time. The token is in the file that {PodEnv.TOKEN_FILE} names."
            )
        self._folder.mkdir(parents=True, exist_ok=True)
        # In the names of files: trainers of several machines may have the same process id.
        self._writer = uuid.uuid4().hex[:12]
        self._fence = ShardFence(self._folder, service.ledger_id, writer=self._writer)
        # That of the state that the model goes on from; the model's own values then.
        self._version = 0
        self._base: dict[str, Any] = {}
        # The samples that this trainer has added to the state and reported since.
        self._reported: list[Span] = []
        with self._locked():
            # Of trainers that were killed while they wrote.
            for left in self._folder.glob("*.new"):
                left.unlink()
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
            lease = Lease(self._service.shard_number, self._span_of(shard))
            if lease.span.start == lease.span.end:
                continue
            with self._locked():
                is_in_state = self._is_in_state(lease.span)
                may_train = not is_in_state and self._fence.register(lease)
            if may_train and self._service.still_holds(lease.number):
                yield shard
                if self._add(lease):
                    self._report(lease)
            elif is_in_state:
                self._report(lease)
            else:
                log.warning("Skipping %s: leased to another trainer", lease.span)
                self._give_back(lease)
        self._service.flush()
        with self._locked():
            self._fence.remove()

    def _span_of(self, shard: pb.Shard) -> Span:
        service = self._service
        epoch = service.shard_epoch
        return Span(service.ledger_id, service.dataset_name, epoch, int(shard.start), int(shard.end))

    def _is_in_state(self, span: Span) -> bool:
        """A trainer that died may have added it and not reported it, or not all of it."""
        state = self._read()
        return any(span.is_within([known]) for known in self._unreported(state))

    def _unreported(self, state: dict[str, Any] | None) -> list[Span]:
        """What is in the state, and may not be known to be by the master of its job."""
        if state is None:
            return []
        # Entries of earlier versions name no job.
        spans = [Span(*each) for each in state["unreported"] if len(each) == len(Span._fields)]
        others = [span for span in spans if span.ledger_id != self._service.ledger_id]
        own = [span for span in spans if span.ledger_id == self._service.ledger_id]
        return [*others[-MOST_OF_OTHER_JOBS:], *(span for span in own if not span.is_within(self._reported))]

    def _give_back(self, lease: Lease) -> None:
        with self._locked():
            self._fence.remove(lease)
        self._service.give_back(lease.number)

    def _add(self, lease: Lease) -> bool:
        """Adds what was learned to the state. False if the shard was leased to another trainer meanwhile.

        Raises `NonFiniteError` if the model was spoiled meanwhile.
        """
        self._check_finite()
        with self._locked():
            is_added = False
            while not is_added and self._fence.is_registered(lease):
                seen = self._fingerprint()
                state = self._read()
                if state is not None and int(state["version"]) != self._version:
                    self._merge(state["model"])
                    self._version = int(state["version"])
                new = {
                    "version": 1 + (0 if state is None else self._version),
                    "model": dict(self._model.state_dict()),
                    "optimizer": self._optimizer.state_dict(),
                    "unreported": [list(span) for span in (*self._unreported(state), lease.span)],
                }
                is_added = self._write(new, seen)
            if not is_added:
                self._discard(lease)
        if not is_added:
            self._service.give_back(lease.number)
            return False
        self._version = int(new["version"])
        self._reported = []
        self._base = _copied(self._model)
        return True

    def _discard(self, lease: Lease) -> None:
        """Goes back to the state, which has or will have the shard from another trainer."""
        log.warning("Discarding what was learned of %s: leased to another trainer", lease.span)
        state = self._read()
        if state is None:
            raise ShardError(
                f"The {lease.span}, were leased to another trainer before there was a state in {self._folder} to go on "
                "from. This trainer ends."
            )
        self._load(state)
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

    def _report(self, lease: Lease) -> None:
        # The state says that it is not reported, until the master accepts the report. It rejects that of a lost lease:
        # the next trainer with the samples finds them in the state, and only reports them.
        if self._service.finish_shard(lease.number, lease.span.end - lease.span.start):
            self._reported.append(lease.span)
        self._fence.finish(lease)

    @paddle.no_grad()  # type: ignore[untyped-decorator]
    def _merge(self, shared: dict[str, Any]) -> None:
        """Others have gone on: what this trainer has changed is added to what they have."""
        for name, value in self._model.state_dict().items():
            theirs = paddle.to_tensor(shared[name])
            merged = theirs
            if value.is_floating_point():
                change = value - self._base[name]
                # Infinities, as in a mask, cannot be subtracted: where one came or went, the new value is taken.
                changed = paddle.where(paddle.isfinite(change), theirs + change, value)
                merged = paddle.where(value == self._base[name], theirs, changed)
            self._base[name] = theirs
            value.set_value(merged)

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

    def _fingerprint(self) -> tuple[int, ...]:
        """Another for another state. Opened, so that a network file system asks its server."""
        try:
            with (self._folder / _STATE).open("rb") as file:
                found = os.fstat(file.fileno())
        except FileNotFoundError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _write(self, state: dict[str, Any], seen: tuple[int, ...]) -> bool:
        """Whole or not at all: the process may be killed while it writes. False if the state is not the one that was
        seen, because the lock was lost.
        """
        new = self._folder / f"{_STATE}.{self._writer}.new"
        paddle.save(state, str(new))
        with new.open("rb") as file:
            os.fsync(file.fileno())
        if self._fingerprint() != seen:
            return False
        new.replace(self._folder / _STATE)
        return True


def _copied(model: Any) -> dict[str, Any]:
    return {name: value.clone().detach() for name, value in model.state_dict().items()}
