"""Where the model lives: in this worker, or on parameter servers. The loop does not care which.

Parameters often exist only after the first batch (layers are built by what they see), so both wait for one
(`prepare`) before they fetch or give values.
"""

from __future__ import annotations

import abc
from pathlib import Path
from typing import Any

from elasticdl.jobs.errors import UserError
from elasticdl.ps.checkpoints import Checkpoint, SavedFile, find_checkpoint
from elasticdl.ps.client import ParameterClient, StaleGradients
from elasticdl.ps.lookups import Lookups
from elasticdl.ps.optimizers import make_optimizer
from elasticdl.ps.shares import merge
from elasticdl.ps.snapshot import Snapshot, read_snapshot, write_snapshot
from elasticdl.worker.trainer import Batch, Parameters, Trainer

# The file of a worker that owns the model, in a checkpoint.
WORKER_FILE = "worker.edl"
# Groups of a snapshot that hold the model's values, whoever wrote it; the rest is for the optimizer.
TRAINABLE, STATE, OPTIMIZER = "trainable", "state", "optimizer"


class Model(abc.ABC):
    """One generation of the model that this worker trains."""

    @abc.abstractmethod
    def prepare(self, batch: Batch) -> None:
        """Makes parameters exist and have the right values. Before anything else; safe to repeat."""

    @abc.abstractmethod
    def train(self, batch: Batch, *, position: int, batches: int) -> float:
        """One step; on return it is applied. Position and batches: what the ledger will hear of it."""

    @abc.abstractmethod
    def freeze(self, name: str) -> None:
        """Computes with a frozen copy until `thaw`."""

    @abc.abstractmethod
    def thaw(self) -> None: ...

    @property
    @abc.abstractmethod
    def step(self) -> int: ...

    @abc.abstractmethod
    def close(self) -> None:
        """This generation is over."""


class OwnModel(Model):
    """The only worker's own model, trained with the framework's own optimizer."""

    def __init__(self, trainer: Trainer, *, restore_from: str, first_step: int) -> None:
        self._trainer = trainer
        self._restore_from = restore_from
        self._step = first_step
        self._ready = False

    def prepare(self, batch: Batch) -> None:
        if self._ready:
            return
        self._trainer.build(batch)
        if self._trainer.tables:
            self._trainer.tables.keep(make_optimizer(self._trainer.optimizer_config()))
        if self._restore_from:
            restore(self._trainer, self._restore_from)
        self._ready = True

    def train(self, batch: Batch, *, position: int, batches: int) -> float:
        self._step += 1
        return self._trainer.train(batch)

    def freeze(self, name: str) -> None:
        # Nobody else trains it, and this worker evaluates before it goes on.
        return

    def thaw(self) -> None:
        return

    @property
    def step(self) -> int:
        return self._step

    def close(self) -> None:
        return

    def save(self, folder: Path) -> list[SavedFile]:
        """Writes everything needed to go on from here."""
        return [save(self._trainer, folder, with_optimizer=True)]


class ServedModel(Model):
    """A model on parameter servers, shared with the other workers."""

    def __init__(
        self,
        trainer: Trainer,
        client: ParameterClient,
        *,
        pull_every: int,
        restore_from: str,
    ) -> None:
        """`restore_from`: the checkpoint that the servers have their values from, if any."""
        self._trainer = trainer
        self._client = client
        self._restore_from = restore_from
        self._pull_every = pull_every
        self._lookups = Lookups(client)
        self._since_pull = 0
        self._versions: dict[int, int] = {}
        self._step = 0
        self._ready = False

    def prepare(self, batch: Batch) -> None:
        if self._ready:
            return
        self._trainer.build(batch)
        mine = self._trainer.parameters()
        tables = self._trainer.tables
        declared: dict[str, Any] = {"tables": tables.specs} if tables else {}
        try:
            self._client.initialize(
                mine.trainable, mine.state, self._trainer.optimizer_config(), **declared
            )
        except UserError as error:
            if self._restore_from:
                raise _of_another_model(find_checkpoint(self._restore_from), error) from error
            raise
        if tables:
            tables.join(self._lookups)
        self._pull()
        self._ready = True

    def _pull(self) -> None:
        pulled = self._client.pull(known_versions=self._versions)
        self._versions = dict(pulled.versions)
        self._step = max(self._versions.values(), default=0)
        if pulled.trainable:
            self._trainer.set_parameters(
                Parameters(trainable=dict(pulled.trainable), state=dict(pulled.state))
            )
        self._since_pull = 0

    def train(self, batch: Batch, *, position: int, batches: int) -> float:
        if self._since_pull >= self._pull_every:
            self._pull()
        self._since_pull += 1
        while True:
            loss, gradients = self._trainer.gradients(batch)
            rows: dict[str, Any] = {"rows": self._trainer.row_gradients()} if self._trainer.tables else {}
            try:
                reached = self._client.push(
                    gradients,
                    **rows,
                    state=self._trainer.state(),
                    learning_rate=self._trainer.learning_rate(self.step),
                    versions=self._versions,
                    # A part of a shard without order inside cannot be credited if this worker dies now.
                    lease_id=batch.shard.lease_id if batch.last or not batch.atomic else 0,
                    position=position,
                    batches=batches,
                )
                self._step = max(reached.values(), default=0)
                return loss
            except StaleGradients:
                # Others were faster: the same batch again with the values of now.
                self._pull()

    def freeze(self, name: str) -> None:
        frozen = self._client.pull(frozen=name)
        self._trainer.set_parameters(Parameters(trainable=dict(frozen.trainable), state=dict(frozen.state)))
        self._lookups.frozen = name
        self._versions = {}

    def thaw(self) -> None:
        self._lookups.frozen = ""
        self._pull()

    @property
    def step(self) -> int:
        return self._step

    def close(self) -> None:
        self._client.close()


def save(trainer: Trainer, folder: Path, *, with_optimizer: bool) -> SavedFile:
    values = trainer.parameters()
    groups = {TRAINABLE: values.trainable, STATE: values.state}
    if with_optimizer:
        groups[OPTIMIZER] = trainer.optimizer_state()
    groups |= trainer.tables.groups()
    folder.mkdir(parents=True, exist_ok=True)
    size, crc = write_snapshot(folder / WORKER_FILE, Snapshot(attributes={"owner": "worker"}, groups=groups))
    return SavedFile(name=WORKER_FILE, bytes=size, crc32=crc)


def restore(trainer: Trainer, place: str) -> None:
    """Gives a built model the values of a checkpoint or an export."""
    checkpoint = find_checkpoint(place)
    snapshot = merge([read_snapshot(file) for file in checkpoint.data_files()])
    values = Parameters(
        trainable=dict(snapshot.groups.get(TRAINABLE, {})), state=dict(snapshot.groups.get(STATE, {}))
    )
    if trainer.tables and trainer.tables.lookups is None:
        trainer.tables.keep(None)
    try:
        trainer.set_parameters(values)
        trainer.tables.load(snapshot.groups)
    except UserError as error:
        raise _of_another_model(checkpoint, error) from error
    if OPTIMIZER in snapshot.groups:
        trainer.set_optimizer_state(snapshot.groups[OPTIMIZER])


def _of_another_model(checkpoint: Checkpoint, error: UserError) -> UserError:
    made_with = checkpoint.manifest.attributes.get("model_def", "?")
    return UserError(
        f"The checkpoint {checkpoint.path} is of another model (--model_def={made_with}).\n{error.message}",
        hint="Use the model definition that made it, or another --checkpoint_dir_for_init.",
    )
