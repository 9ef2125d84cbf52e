"""Everything one parameter server knows, and the rules by which it changes. No I/O: calls come in, arrays come out.

Exactly once: every worker numbers its batches. A batch whose number was the last one applied gets the same
reply again and changes nothing, so a worker may repeat a push until it hears the answer. A push that was
refused because its values were too old used no number up: the batch, computed again, comes under the same
one, and servers that had taken it before pass over it.

Asynchronous training applies every push at once. Synchronous training adds up `grads_to_wait` of them,
applies their mean, and refuses those computed on a version more than `sync_version_tolerance` behind.

Generations: when a server of the job has died, what the others hold is worth nothing by itself. The master
raises the generation, and everything here is dropped and restored from the last checkpoint. Calls of a lower
generation are refused for good, those of a higher one for now.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from elasticdl.jobs.errors import UserError
from elasticdl.ps.dense import DenseParameters, differences
from elasticdl.ps.failures import NothingHeld, NotReady, OldGeneration, WorkerFenced
from elasticdl.ps.optimizers import make_optimizer
from elasticdl.ps.shares import STATE, TRAINABLE
from elasticdl.ps.snapshot import Snapshot
from elasticdl.ps.tensors import Array, find_not_finite
from elasticdl.wire import ps_pb2

_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """What a parameter server needs to know of its job."""

    num_ps: int = 1
    asynchronous: bool = True
    grads_to_wait: int = 1
    lr_staleness_modulation: bool = False
    sync_version_tolerance: int = 0

    @property
    def synchronous(self) -> bool:
        return self.grads_to_wait > 1 or not self.asynchronous


@dataclass(frozen=True, kw_only=True)
class Push:
    """The gradients of one batch, and what batch it was."""

    worker: str
    sequence: int
    version: int
    learning_rate: float
    gradients: Mapping[str, Array]
    state: Mapping[str, Array] = field(default_factory=dict)
    lease_id: int = 0
    position: int = 0
    batches: int = 0
    generation: int = 0


@dataclass(frozen=True, kw_only=True)
class Pushed:
    accepted: bool
    version: int


@dataclass(frozen=True, kw_only=True)
class Pulled:
    initialized: bool
    version: int = 0
    unchanged: bool = False
    trainable: Mapping[str, Array] = field(default_factory=dict)
    state: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LastPush:
    """The last batch of a worker that was applied; sequence 0 if there is none."""

    sequence: int = 0
    lease_id: int = 0
    position: int = 0
    batches: int = 0
    reply: Pushed | None = None


@dataclass(frozen=True, kw_only=True)
class StoreStatus:
    generation: int
    ready: bool
    initialized: bool
    version: int
    # Single numbers that are trained, and the bytes of all values without slots.
    parameters: int
    bytes: int
    pushes: int


class Store:
    """Safe to call from many threads."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._generation = -1
        self._ready = False
        self._clear()

    # -- generations -----------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._dense: DenseParameters | None = None
        self._optimizer: dict[str, Any] | None = None
        self._optimizer_confirmed = False
        self._version = 0
        # Updates since the slots began: what optimizers call the step.
        self._optimizer_step = 0
        self._waiting = 0
        self._waiting_learning_rate = 0.0
        self._pushes = 0
        self._last: dict[str, LastPush] = {}
        self._fenced: set[str] = set()
        self._frozen: dict[str, Snapshot] = {}

    def close(self, generation: int) -> None:
        """A generation begins: drops everything, and refuses calls until `open`."""
        with self._lock:
            self._clear()
            self._generation = generation
            self._ready = False

    def open(self, restored: Snapshot | None = None) -> None:
        """Ready to be called: with the values of a snapshot, whose arrays become the store's own, or empty."""
        with self._lock:
            if restored is not None:
                self._restore(restored)
            self._ready = True

    @property
    def generation(self) -> int:
        return self._generation

    def _restore(self, snapshot: Snapshot) -> None:
        attributes = snapshot.attributes
        self._dense = DenseParameters.of_groups(snapshot.groups)
        self._version = int(attributes.get("version", 0))
        optimizer = attributes.get("optimizer")
        if optimizer:
            self._use_optimizer(optimizer, int(attributes.get("optimizer_step", 0)))
            self._waiting = int(attributes.get("waiting", 0))
            self._waiting_learning_rate = float(attributes.get("waiting_learning_rate", 0.0))
            # The job may wait for fewer gradients now than the one that made the checkpoint.
            if self._waiting and (
                not self._settings.synchronous or self._waiting >= self._settings.grads_to_wait
            ):
                self._apply_waiting(self._dense)

    def _use_optimizer(self, optimizer: dict[str, Any], step: int) -> None:
        assert self._dense is not None
        kept = self._dense.use_optimizer(make_optimizer(ps_pb2.OptimizerConfig(**optimizer)))
        self._optimizer = optimizer
        self._optimizer_step = step if kept else 0

    def _check_generation(self, generation: int) -> None:
        if generation < self._generation:
            raise OldGeneration(f"generation {generation} is over, this is generation {self._generation}")
        if generation > self._generation or not self._ready:
            raise NotReady(f"this server is not ready for generation {generation} yet")

    def _held(self) -> DenseParameters:
        if self._dense is None:
            raise NothingHeld("no worker has given this server its initial values yet")
        return self._dense

    # -- workers ---------------------------------------------------------------------------------------------

    def initialize(
        self,
        *,
        generation: int,
        trainable: Mapping[str, Array],
        state: Mapping[str, Array],
        optimizer: ps_pb2.OptimizerConfig,
    ) -> bool:
        """Takes the initial values, if there are none; returns whether there were.

        Raises `UserError` if those that there are do not fit the caller's model.
        """
        config = {"name": optimizer.name, "flavor": optimizer.flavor, "options": dict(optimizer.options)}
        with self._lock:
            self._check_generation(generation)
            if self._dense is None:
                make_optimizer(optimizer)
                # Copied, because these are views of a message.
                self._dense = DenseParameters(
                    {name: np.array(value, order="C") for name, value in trainable.items()},
                    {name: np.array(value, order="C") for name, value in state.items()},
                )
                self._use_optimizer(config, 0)
                self._optimizer_confirmed = True
                return False
            problems = differences(self._dense.values, trainable) + differences(self._dense.state, state)
            if problems:
                raise UserError(
                    f"The values on the parameter servers are of another model: {'; '.join(problems[:5])}"
                    f"{f'; and {len(problems) - 5} more' if len(problems) > 5 else ''}.",
                    hint="Is the checkpoint that the job started from one of this model?",
                )
            if not self._optimizer_confirmed:
                # Values come from a checkpoint, how to train from here on from the job. Slots are kept if
                # they fit.
                if config != self._optimizer:
                    self._use_optimizer(config, self._optimizer_step)
                self._optimizer_confirmed = True
            return True

    def pull(
        self,
        use: Callable[[Pulled], _Result],
        *,
        generation: int,
        frozen: str = "",
        known_version: int = -1,
    ) -> _Result:
        """Hands the values to `use` and returns what it returns.

        Live values change as soon as `use` is over: it has to take a copy.
        """
        with self._lock:
            self._check_generation(generation)
            if not frozen:
                return use(self._pull_live(known_version))
            snapshot = self._find_frozen(frozen)
        # A frozen copy never changes, so others need not wait for this.
        version = int(snapshot.attributes["version"])
        if version == known_version:
            return use(Pulled(initialized=True, version=version, unchanged=True))
        groups = snapshot.groups
        return use(
            Pulled(initialized=True, version=version, trainable=groups[TRAINABLE], state=groups[STATE])
        )

    def _pull_live(self, known_version: int) -> Pulled:
        if self._dense is None:
            return Pulled(initialized=False)
        if known_version == self._version:
            return Pulled(initialized=True, version=self._version, unchanged=True)
        return Pulled(
            initialized=True, version=self._version, trainable=self._dense.values, state=self._dense.state
        )

    def push(self, push: Push) -> Pushed:
        """Applies a batch, once. Raises `UserError` if it cannot be applied, and then nothing of it is."""
        bad = find_not_finite(push.gradients)
        with self._lock:
            self._check_generation(push.generation)
            if push.worker in self._fenced:
                raise WorkerFenced(f"the master has given up {push.worker}")
            dense = self._held()
            if not dense.has_optimizer:
                raise NothingHeld("no worker has told this server the optimizer yet")
            last = self._last.get(push.worker, LastPush())
            if push.sequence == last.sequence and last.reply is not None:
                return last.reply
            if push.sequence <= last.sequence:
                raise ValueError(f"batch {push.sequence} of {push.worker} comes after batch {last.sequence}")
            if bad is not None:
                raise UserError(
                    f"The gradient of {bad} is not finite (NaN or infinity).",
                    hint="A smaller learning rate, clipped gradients or other data may help.",
                )
            if not math.isfinite(push.learning_rate):
                raise UserError(f"The learning rate is {push.learning_rate}, which is no number.")
            dense.check(push.gradients, push.state)
            if (
                self._settings.synchronous
                and push.version < self._version - self._settings.sync_version_tolerance
            ):
                return Pushed(accepted=False, version=self._version)
            self._apply(dense, push)
            dense.set_state(push.state)
            self._pushes += 1
            reply = Pushed(accepted=True, version=self._version)
            self._last[push.worker] = LastPush(
                sequence=push.sequence,
                lease_id=push.lease_id,
                position=push.position,
                batches=push.batches,
                reply=reply,
            )
            return reply

    def _apply(self, dense: DenseParameters, push: Push) -> None:
        if not self._settings.synchronous:
            staleness = self._version - push.version
            modulated = self._settings.lr_staleness_modulation and staleness > 1
            learning_rate = push.learning_rate / staleness if modulated else push.learning_rate
            dense.apply(push.gradients, learning_rate, self._optimizer_step + 1)
            self._count_update()
            return
        dense.add_pending(push.gradients)
        self._waiting += 1
        self._waiting_learning_rate = push.learning_rate
        if self._waiting >= self._settings.grads_to_wait:
            self._apply_waiting(dense)

    def _apply_waiting(self, dense: DenseParameters) -> None:
        dense.apply_pending(self._waiting, self._waiting_learning_rate, self._optimizer_step + 1)
        self._waiting = 0
        self._count_update()

    def _count_update(self) -> None:
        self._version += 1
        self._optimizer_step += 1

    # -- the master ------------------------------------------------------------------------------------------

    def freeze(self, name: str, *, generation: int, flush: bool = False) -> int:
        """Keeps everything as it is now under a name, and returns its version. Again: changes nothing.

        With `flush` gradients that wait for more in synchronous training are applied first, few as they are.
        """
        with self._lock:
            self._check_generation(generation)
            if name not in self._frozen:
                dense = self._held()
                if flush and self._waiting:
                    self._apply_waiting(dense)
                self._frozen[name] = Snapshot(
                    attributes={
                        "version": self._version,
                        "optimizer": self._optimizer,
                        "optimizer_step": self._optimizer_step,
                        "waiting": self._waiting,
                        "waiting_learning_rate": self._waiting_learning_rate,
                    },
                    groups=dense.groups(),
                )
            return int(self._frozen[name].attributes["version"])

    def release(self, name: str) -> None:
        """Forgets a frozen copy; names that are not there are none either afterwards."""
        with self._lock:
            self._frozen.pop(name, None)

    def frozen(self, name: str) -> Snapshot:
        """A frozen copy. It stays as it is, even if it is released meanwhile."""
        with self._lock:
            return self._find_frozen(name)

    def _find_frozen(self, name: str) -> Snapshot:
        if name not in self._frozen:
            raise NothingHeld(f"there is no frozen copy {name!r} here")
        return self._frozen[name]

    def fence(self, worker: str) -> LastPush:
        """Takes nothing more from a worker, and tells its last batch that was applied."""
        with self._lock:
            self._fenced.add(worker)
            return self._last.get(worker, LastPush())

    def status(self) -> StoreStatus:
        with self._lock:
            dense = self._dense
            values = list(dense.values.values()) if dense else []
            state = list(dense.state.values()) if dense else []
            return StoreStatus(
                generation=self._generation,
                ready=self._ready,
                initialized=dense is not None,
                version=self._version,
                parameters=sum(value.size for value in values),
                bytes=sum(array.nbytes for array in values + state),
                pushes=self._pushes,
            )
