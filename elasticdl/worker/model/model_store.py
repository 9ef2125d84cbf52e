"""The place of the model: in this worker, or on parameter servers (`served_model.py`), behind one interface.

Parameters often exist only after the first batch (layers are built by what they see), so both wait for one
(`prepare`) before they fetch or give values.
"""

from __future__ import annotations

import abc
import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import ArrayFile, ArrayFileWriter
from elasticdl.ps.checkpoint.checkpoint_folders import Checkpoint, SavedFile, chain, find_checkpoint
from elasticdl.ps.checkpoint.resharding import TABLE_PREFIX
from elasticdl.ps.checkpoint.table_files import SavedTables
from elasticdl.ps.core.tensors import find_nan, find_not_finite
from elasticdl.ps.embedding.optimizers import make_optimizer
from elasticdl.ps.storage.local_tables import LocalTables
from elasticdl.worker.trainer import Array, Batch, Parameters, Trainer

log = logging.getLogger("elasticdl.worker")

# The file of a worker that owns the model, in a checkpoint.
WORKER_FILE = "worker.edl"
_NON_FINITE_HINT = "A smaller learning rate, clipped gradients or other data may help."
# Groups of a snapshot that hold the model's values, from any writer; the rest is for the optimizer.
TRAINABLE, STATE, OPTIMIZER = "trainable", "state", "optimizer"


class Model(abc.ABC):
    """A generation of the model that this worker trains."""

    # The initial values, as long as this worker may have to send them again.
    beginning: Parameters | None = None
    # Batches that this worker has skipped, since their loss or gradients were not finite. Parameter servers count
    # theirs themselves.
    skipped_batches: int = 0

    @abc.abstractmethod
    def prepare(self, batch: Batch) -> None:
        """Makes parameters exist and have the right values. Before anything else; safe to repeat."""

    @abc.abstractmethod
    def train(
        self,
        batch: Batch,
        *,
        position: int,
        batches: int,
        applied: Callable[[float], None] | None = None,
        upcoming: Batch | None = None,
    ) -> float:
        """Makes a step and returns its loss; on return it is applied, unless the model `is_asynchronous`. Position and
        batches: the progress for the ledger.

        `applied` is called with the loss when the step is part of the model, by any thread, and before that of the
        next step. `upcoming`: the next batch, if it is known already.
        """

    def settle(self) -> None:  # noqa: B027 - where steps are applied at once there is nothing to wait for
        """Waits until all steps are applied. Raises what went wrong with one."""

    @property
    def failed(self) -> bool:
        """A step that has been made could not be applied: `settle` says why."""
        return False

    @property
    def is_asynchronous(self) -> bool:
        """Steps are applied while the next batch is computed with, and it is of use to know that one."""
        return False

    @abc.abstractmethod
    def freeze(self, name: str) -> None:
        """Computes with a copy-on-write snapshot until `thaw`."""

    @abc.abstractmethod
    def thaw(self) -> None: ...

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """Provides all of the model in this worker, with the rows of its tables, to be exported inside of this
        context.
        """
        yield

    @property
    @abc.abstractmethod
    def step(self) -> int: ...

    @abc.abstractmethod
    def close(self) -> None:
        """This generation is over."""


class LocalModel(Model):
    """The only worker's own model, trained with the framework's own optimizer."""

    def __init__(
        self, trainer: Trainer, *, restore_from: str, first_step: int, max_bad_gradients: int = 0
    ) -> None:
        """Up to `max_bad_gradients` batches with a loss or gradients that are not finite are skipped."""
        self._trainer = trainer
        self._allowed = max_bad_gradients
        self._restore_from = restore_from
        self._step = first_step
        self._ready = False

    def prepare(self, batch: Batch) -> None:
        if self._ready:
            return
        self._trainer.build(batch)
        if self._trainer.tables:
            optimizer = make_optimizer(self._trainer.optimizer_config())
            self._trainer.tables.keep(LocalTables(self._trainer.tables.specs, optimizer=optimizer))
        if self._restore_from:
            self.skipped_batches = restore(self._trainer, self._restore_from)
        self._ready = True

    def train(
        self,
        batch: Batch,
        *,
        position: int,
        batches: int,
        applied: Callable[[float], None] | None = None,
        upcoming: Batch | None = None,
    ) -> float:
        if self._allowed:
            loss = self._train_guarded(batch, position)
        else:
            self._step += 1
            loss = self._trainer.train(batch)
            if not math.isfinite(loss):
                # The optimizer has applied the batch: this model is lost, and the last checkpoint is what counts.
                raise UserError(
                    f"The loss of step {self._step:,} is {loss}, in the batch that ends at sample {position:,}.",
                    hint=f"{_NON_FINITE_HINT} The last checkpoint is from before this batch.",
                )
        if applied is not None:
            applied(loss)
        return loss

    def _train_guarded(self, batch: Batch, position: int) -> float:
        # Moving averages change with the forward pass, before there is a gradient.
        state = self._trainer.state()
        loss = self._trainer.train(batch, guarded=True)
        if math.isfinite(loss):
            self._step += 1
            return loss
        values = self._trainer.parameters()
        self._trainer.set_parameters(Parameters(trainable=values.trainable, state=state))
        self.skipped_batches += 1
        if self.skipped_batches > self._allowed:
            raise non_finite_batch(f"the batch that ends at sample {position:,}", allowed=self._allowed)
        log.warning(
            "Skipping the batch that ends at sample %d: its loss or gradients are not finite (NaN or infinity). "
            "Skipped so far: %d.",
            position,
            self.skipped_batches,
        )
        return loss

    def freeze(self, name: str) -> None:
        # This worker alone trains it, and evaluates before it goes on.
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
        return [save(self._trainer, folder, with_optimizer=True, skipped_batches=self.skipped_batches)]


def non_finite_batch(where: str, *, allowed: int) -> UserError:
    """The error of a batch with a loss or a gradient that is not finite, beyond those that may be skipped."""
    before = f" {allowed:,} such batches were skipped before (--max_bad_gradients)." if allowed else ""
    return UserError(
        f"The loss or a gradient of {where} is not finite (NaN or infinity).{before}", hint=_NON_FINITE_HINT
    )


def save(trainer: Trainer, folder: Path, *, with_optimizer: bool, skipped_batches: int = 0) -> SavedFile:
    """Writes the model. Raises `UserError` if a parameter is not finite: such a file must not follow a good one."""
    values = trainer.parameters()
    bad = find_not_finite(values.trainable)
    if bad is not None:
        raise UserError(
            f"The parameter {bad} is not finite (NaN or infinity): the model is not saved.",
            hint=f"{_NON_FINITE_HINT} The last checkpoint is from before.",
        )
    bad = find_nan(values.state)
    if bad is not None:
        raise UserError(
            f"{bad}, which is not trained, has a NaN: the model is not saved.",
            hint="Moving averages become NaN by one batch with a NaN or infinity in it, though its loss may be finite. "
            "The last checkpoint is from before.",
        )
    groups = {TRAINABLE: values.trainable, STATE: values.state}
    if with_optimizer:
        groups[OPTIMIZER] = trainer.optimizer_state()
    folder.mkdir(parents=True, exist_ok=True)
    with ArrayFileWriter(folder / WORKER_FILE) as file:
        for group, arrays in groups.items():
            if not arrays:
                file.add_empty(group)
            for name, array in arrays.items():
                file.add(group, name, array)
        own = trainer.tables.own
        attributes = {"owner": "worker", "skipped_batches": skipped_batches}
        size, crc = file.finish(attributes | (own.write(file) if own is not None else {}))
    return SavedFile(name=WORKER_FILE, bytes=size, crc32=crc)


def restore(trainer: Trainer, place: str) -> int:
    """Gives a built model the values of a checkpoint or an export. Returns how many batches were skipped before."""
    checkpoint = find_checkpoint(place)
    groups = _read_parameters(checkpoint)
    values = Parameters(trainable=groups.get(TRAINABLE, {}), state=groups.get(STATE, {}))
    if trainer.tables and trainer.tables.lookups is None:
        trainer.tables.keep(LocalTables(trainer.tables.specs))
    files = [each.data_files() for each in chain(checkpoint)]
    try:
        moved = _moved_back(trainer, files)
        values.trainable |= {trainer.parameter_of_table(table): rows for table, rows in moved.items()}
        trainer.set_parameters(values)
        own = trainer.tables.own
        (LocalTables() if own is None else own).restore(files, ignored=moved)
    except UserError as error:
        raise of_another_model(checkpoint, error) from error
    if OPTIMIZER in groups:
        trainer.set_optimizer_state(groups[OPTIMIZER])
    return _count_skipped(checkpoint)


def _count_skipped(checkpoint: Checkpoint) -> int:
    counts = [0]
    for path in checkpoint.data_files():
        with ArrayFile(path) as file:
            counts.append(int(file.attributes.get("skipped_batches", 0)))
    return max(counts)


def _read_parameters(checkpoint: Checkpoint) -> dict[str, dict[str, Array]]:
    """Reads the files of a checkpoint, from any writer, without tables."""
    groups: dict[str, dict[str, Array]] = {}
    for path in checkpoint.data_files():
        with ArrayFile(path) as file:
            for group, entries in file.entries.items():
                if not group.startswith(TABLE_PREFIX):
                    found = {name: file.read(group, name) for name in entries}
                    groups.setdefault(group, {}).update(found)
    return groups


def _moved_back(trainer: Trainer, files: list[list[Path]]) -> dict[str, Array]:
    """Embeddings that are tables in a checkpoint, because they were large, and ordinary ones here."""
    found: dict[str, Array] = {}
    with SavedTables(files) as saved:
        specs = {name: each.spec for name, each in saved.descriptions.items()}
    for name, spec in specs.items():
        parameter = trainer.parameter_of_table(name)
        if parameter:
            tables = LocalTables([spec])
            tables.restore(files, ignored=specs.keys() - {name})
            rows = trainer.parameters().trainable[parameter].shape[0]
            found[name] = tables.pull_rows({name: np.arange(rows)}, create=False)[name]
    return found


def of_another_model(checkpoint: Checkpoint, error: UserError) -> UserError:
    made_with = checkpoint.manifest.attributes.get("model_def", "?")
    return UserError(
        f"The checkpoint {checkpoint.path} is of another model (--model_def={made_with}).\n{error.message}",
        hint="Use the model definition that made it, or another --checkpoint_dir_for_init.",
    )
