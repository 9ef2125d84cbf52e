"""The content of a server, and its updates by pushes: dense parameters, tables, and the history of applied batches.

The same calls in the same order make the same bucket_store, to the bit: that is what keeps a backup equal to its
primary. Nothing here depends on a clock, on chance, or on the caller. Callers are
authorized in `worker_calls.py` and its siblings.

Asynchronous training applies every push at once. Synchronous training adds up `grads_to_wait` of them and applies their
mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.resharding import STATE, TRAINABLE, WAITING_PREFIX, buckets_of_names
from elasticdl.ps.checkpoint.table_files import SavedTables, TableDescription
from elasticdl.ps.core.array_bodies import Mask
from elasticdl.ps.core.bucket_versions import Newer
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.server_errors import NotFound, ReplicaDiverged
from elasticdl.ps.core.tensors import Array
from elasticdl.ps.embedding.custom_optimizer import OptimizerNotFound
from elasticdl.ps.embedding.optimizers import Optimizer, make_optimizer
from elasticdl.ps.embedding.table import MOST_PARTS, TableSpec
from elasticdl.ps.storage.dense_parameters import DenseParameters, differences
from elasticdl.ps.storage.table_set import ROWS_PREFIX, RowPart, Tables
from elasticdl.ps.storage.update_history import LastPush, UpdateHistories, UpdateHistory
from elasticdl.wire import ps_pb2


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """The settings of a parameter server from its job."""

    asynchronous: bool = True
    grads_to_wait: int = 1
    lr_staleness_modulation: bool = False
    sync_version_tolerance: int = 0
    # Batches with gradients that are not finite: so many are passed over.
    max_bad_gradients: int = 0
    # Bytes that the rows of tables may take; 0: as many as there are.
    memory_limit: int = 0
    # The folder where an optimizer of the user's own is.
    model_zoo: str = ""

    @property
    def synchronous(self) -> bool:
        return self.grads_to_wait > 1 or not self.asynchronous


@dataclass(frozen=True, kw_only=True)
class Push:
    """The gradients of one batch, and what batch it was."""

    worker: str
    sequence: int
    # The version of the values that the gradients were computed with: that of the oldest bucket, and the newer ones.
    version: int
    learning_rate: float
    gradients: Mapping[str, Array]
    state: Mapping[str, Array] = field(default_factory=dict)
    rows: Mapping[str, RowPart] = field(default_factory=dict)
    lease_id: int = 0
    position: int = 0
    batches: int = 0
    generation: int = 0
    # The gradient of this is not finite: nothing of the batch is applied.
    not_finite: str = ""
    # The buckets of the push; None: all. The bucket of each array as the sender knows it.
    buckets: Mask | None = None
    array_buckets: Mapping[str, int] = field(default_factory=dict)
    newer: Newer = ()
    # Buckets that have these samples already: they take note of the batch, and nothing is applied to them.
    applied: Mask | None = None

    def has_been_applied(self, history: UpdateHistory) -> bool:
        return self.applied is not None and bool((self.applied & history.mask).any())

    def age(self, history: UpdateHistory) -> int:
        """Returns the number of updates of these buckets since they were pulled, all at one version."""
        pulled = next((version for mask, version in self.newer if (mask & history.mask).any()), self.version)
        return history.version - pulled


@dataclass(frozen=True, kw_only=True)
class InitialModel:
    """The model as a worker gives it."""

    trainable: Mapping[str, Array]
    state: Mapping[str, Array]
    optimizer: ps_pb2.OptimizerConfig
    tables: Sequence[TableSpec] = ()
    array_buckets: Mapping[str, int] = field(default_factory=dict)


class BucketStore:
    """The content of a server. Not thread-safe, but rows may be looked up at any time."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self.dense = DenseParameters({}, {})
        self.tables = Tables(memory_limit=settings.memory_limit)
        self.histories = UpdateHistories()
        self.optimizer: dict[str, Any] | None = None
        self._rule: Optimizer | None = None
        self._optimizer_confirmed = False
        # The bucket of each dense array.
        self.buckets: dict[str, int] = {}

    # -- the model -------------------------------------------------------------------------------------------

    @property
    def has_optimizer(self) -> bool:
        return self._rule is not None

    def lacks(self, optimizer: ps_pb2.OptimizerConfig) -> bool:
        """Whether this is not the optimizer in use, and would be after `use_optimizer`."""
        return self._rule is None or (
            not self._optimizer_confirmed and _document(optimizer) != self.optimizer
        )

    @property
    def optimizer_confirmed(self) -> bool:
        """Whether a worker has said what this job trains with. Until then what was restored may still be changed for
        that, and rows may not have been read yet.
        """
        return self._optimizer_confirmed

    @property
    def runs_users_code(self) -> bool:
        """Whether updates may fail for reasons that no check finds before."""
        return self._rule is not None and self._rule.custom is not None

    def initialize(self, mask: Mask, initial: InitialModel) -> bool:
        """Takes initial values for buckets that have none; returns whether some had.

        Raises `UserError` if those that there are do not fit.
        """
        config = _document(initial.optimizer)
        # Values come from a checkpoint, how to train from here on from the job. Slots are kept if they fit.
        rule = (
            make_optimizer(initial.optimizer, model_zoo=self._settings.model_zoo)
            if self.lacks(initial.optimizer)
            else None
        )
        given = {TRAINABLE: initial.trainable, STATE: initial.state}
        buckets = {**_all_buckets(given), **initial.array_buckets}
        histories = self.histories.select(mask)
        known = [history for history in histories if history.initialized]
        for history in known:
            problems = differences(
                self._within(self.dense.values, history.mask),
                _chosen(initial.trainable, buckets, history.mask),
            ) + differences(
                self._within(self.dense.state, history.mask), _chosen(initial.state, buckets, history.mask)
            )
            if problems:
                raise UserError(
                    f"The values on the parameter servers are of another model: {'; '.join(problems[:5])}"
                    f"{f'; and {len(problems) - 5} more' if len(problems) > 5 else ''}.",
                    hint="Is the checkpoint that the job started from one of this model?",
                )
        unknown = self.tables.not_among(initial.tables)
        if unknown:
            raise UserError(
                f"The table {unknown[0]} on the parameter servers is not in this model.",
                hint="Is the checkpoint that the job started from one of this model?",
            )
        if rule is not None:
            self._use_optimizer(config, rule)
        assert self._rule is not None
        self._declare(initial.tables, first=not self._optimizer_confirmed)
        self._optimizer_confirmed = True
        self.tables.restore_from(None)
        for history in histories:
            if not history.initialized:
                # Copied, because these are views of a message.
                self._take(
                    {
                        TRAINABLE: _copies(_chosen(initial.trainable, buckets, history.mask)),
                        STATE: _copies(_chosen(initial.state, buckets, history.mask)),
                    },
                    buckets,
                )
                history.initialized = True
        self.histories.merge(histories)
        return bool(known)

    def _declare(self, specs: Iterable[TableSpec], *, first: bool) -> None:
        """`first`: no worker has said before what the tables are in this job."""
        assert self._rule is not None
        # Until then nothing has been trained: whatever is here is as old as it was where it comes from.
        step = max(history.version for history in self.histories)
        self.tables.declare(specs, self._rule, changing_at=step if first else None)

    def _use_optimizer(self, config: dict[str, Any], rule: Optimizer) -> bool:
        """Returns whether the slots there are were right for it."""
        self._rule = rule
        self.optimizer = config
        kept = self.dense.use_optimizer(rule)
        self.tables.use_optimizer(rule)
        if not kept:
            for history in self.histories:
                history.step = 0
        return kept

    def _take(self, groups: Mapping[str, Mapping[str, Array]], buckets: Mapping[str, int]) -> None:
        self.dense.take(groups)
        for group in (TRAINABLE, STATE):
            for name in groups.get(group, {}):
                self.buckets[name] = buckets[name]

    def _within(self, arrays: Mapping[str, Array], mask: Mask) -> dict[str, Array]:
        return _chosen(arrays, self.buckets, mask)

    # -- pushes ----------------------------------------------------------------------------------------------

    def histories_of(self, push: Push, mask: Mask) -> list[UpdateHistory]:
        """Returns the histories of the buckets of a push, divided so that those of a history were pulled at one
        version. The update of a bucket is then the same on every server, whatever other buckets it has.
        """
        for newer, _ in push.newer:
            self.histories.select(newer & mask)
        if push.applied is not None:
            self.histories.select(push.applied & mask)
        return self.histories.select(mask)

    def check(self, push: Push, mask: Mask) -> None:
        """Raises `UserError` if what a push has for some buckets cannot be applied."""
        part = self._part(push, mask)
        self.dense.check(part.gradients, part.state)
        self.tables.check(part.rows)

    def apply(self, push: Push, histories: Sequence[UpdateHistory]) -> None:
        """Applies the part of a checked push for these histories."""
        for history in histories:
            if push.has_been_applied(history):
                pass
            elif push.not_finite:
                history.refused += 1
            else:
                self._apply(push, history)
            history.last[push.worker] = LastPush(
                sequence=push.sequence,
                lease_id=push.lease_id,
                position=push.position,
                batches=push.batches,
                version=history.version,
            )
        self.histories.merge(histories)

    def _apply(self, push: Push, history: UpdateHistory) -> None:
        part = self._part(push, history.mask)
        if self._settings.synchronous:
            self.dense.add_pending(part.gradients)
            self.tables.add_waiting(part.rows)
            history.waiting += 1
            history.waiting_learning_rate = push.learning_rate
            if history.waiting >= self._settings.grads_to_wait:
                self._apply_waiting(history)
        else:
            staleness = push.age(history)
            modulated = self._settings.lr_staleness_modulation and staleness > 1
            learning_rate = push.learning_rate / staleness if modulated else push.learning_rate
            self.dense.apply(part.gradients, learning_rate, history.step + 1)
            self.tables.update(part.rows, learning_rate, history.version + 1)
            self._count_update(history)
        self.dense.set_state(part.state)

    def replay(self, push: Push, mask: Mask) -> None:
        """A push that another server has applied to some buckets, and found right.

        Raises `ReplicaDiverged` if it does not fit what is held here; nothing of it is applied then.
        """
        nothing = LastPush()
        behind = [
            history
            for history in self.histories_of(push, mask)
            if history.last.get(push.worker, nothing).sequence < push.sequence
        ]
        for history in behind:
            if not push.has_been_applied(history) and not push.not_finite:
                self._check_form(self._part(push, history.mask))
        self.apply(push, behind)

    def _check_form(self, part: Push) -> None:
        """Checks the form of a push that a primary has checked; omits slow checks: finite numbers, memory."""
        try:
            self.dense.check(part.gradients, part.state)
            self.tables.check_form(part.rows)
        except (UserError, NotFound) as error:
            raise ReplicaDiverged(str(error)) from error
        if not self.has_optimizer:
            raise ReplicaDiverged("there is no optimizer")

    def flush(self, mask: Mask) -> None:
        """Applies gradients that wait for more, few as they are."""
        histories = self.histories.select(mask)
        for history in histories:
            if history.waiting:
                self._apply_waiting(history)
        self.histories.merge(histories)

    def _part(self, push: Push, mask: Mask) -> Push:
        """Returns the part of a push for some buckets; the push itself, if that is all it is for."""
        if mask.all() or (push.buckets is not None and not (push.buckets & ~mask).any()):
            return push
        buckets = {**self.buckets, **push.array_buckets}
        return Push(
            worker=push.worker,
            sequence=push.sequence,
            version=push.version,
            learning_rate=push.learning_rate,
            gradients=_chosen(push.gradients, buckets, mask),
            state=_chosen(push.state, buckets, mask),
            rows={name: part.of(mask) for name, part in push.rows.items()},
        )

    def _apply_waiting(self, history: UpdateHistory) -> None:
        names = list(self._within(self.dense.pending, history.mask))
        self.dense.apply_pending(names, history.waiting, history.waiting_learning_rate, history.step + 1)
        self.tables.apply_waiting(
            history.mask, history.waiting, history.waiting_learning_rate, history.version + 1
        )
        history.waiting = 0
        self._count_update(history)

    def _count_update(self, history: UpdateHistory) -> None:
        history.version += 1
        history.step += 1
        self.tables.expire(history.mask, history.version)

    # -- copies ----------------------------------------------------------------------------------------------

    def values(self, mask: Mask) -> tuple[dict[str, Array], dict[str, Array]]:
        return self._within(self.dense.values, mask), self._within(self.dense.state, mask)

    def attributes(self) -> dict[str, Any]:
        """Returns the attributes common to all buckets."""
        return {"optimizer": self.optimizer, "tables": self.tables.describe()}

    def dense_groups(self, mask: Mask) -> dict[str, dict[str, Array]]:
        """All dense arrays of some buckets as they are now; later updates leave these alone."""
        return self.dense.groups(self._within({**self.dense.values, **self.dense.state}, mask))

    def parts(self, bucket: int, size: int) -> int:
        """Returns the number of parts in which to export a bucket, if each is to have about so many bytes of rows."""
        return min(MOST_PARTS, 1 + self.tables.bucket_bytes(bucket) // size)

    def export(
        self, bucket: int, *, parts: int = 1
    ) -> tuple[dict[str, Any], dict[str, dict[str, Array]], dict[str, int]]:
        """All of a bucket, to be put elsewhere: attributes, arrays, and the buckets of the dense ones. Of its rows the
        first of so many parts; the others come with `export_part`.
        """
        mask = np.zeros(BUCKETS, np.bool_)
        mask[bucket] = True
        (history,) = self.histories.select(mask)
        attributes = {**self.attributes(), **history.attributes(), "confirmed": self._optimizer_confirmed}
        rows = self.tables.part(bucket, 0, parts)
        groups = {**self.dense_groups(mask), **rows, **self.tables.waiting_groups(mask)}
        self.histories.merge(list(self.histories))
        return attributes, groups, {name: bucket for name, at in self.buckets.items() if at == bucket}

    def export_part(
        self, bucket: int, part: int, parts: int
    ) -> tuple[dict[str, Any], dict[str, dict[str, Array]]]:
        """Returns another part of the present rows of a bucket."""
        (version,) = {history.version for history in self.histories if history.mask[bucket]}
        return {"version": version}, self.tables.part(bucket, part, parts)

    def put(
        self,
        bucket: int,
        attributes: Mapping[str, Any],
        groups: Mapping[str, Mapping[str, Array]],
        *,
        parts: int = 1,
    ) -> None:
        """Takes a bucket in, in place of what was here of it; of its rows, the first of so many parts. The arrays are
        not kept.
        """
        mask = np.zeros(BUCKETS, np.bool_)
        mask[bucket] = True
        self.drop(mask)
        self._adopt(attributes)
        self._optimizer_confirmed = self._optimizer_confirmed or bool(attributes.get("confirmed"))
        dense = {
            group: _copies(members)
            for group, members in groups.items()
            if not group.startswith((ROWS_PREFIX, WAITING_PREFIX))
        }
        names = {*dense.get(TRAINABLE, {}), *dense.get(STATE, {})}
        self._take(dense, dict.fromkeys(names, bucket))
        # Tables copy what they take.
        others = {group: members for group, members in groups.items() if group not in dense}
        self.tables.put(others, step=int(attributes.get("version", 0)))
        self.tables.arrives(bucket, 0, parts)
        self.histories.put(UpdateHistory.of_attributes(mask, dict(attributes)))
        self.histories.merge(list(self.histories))

    def put_part(
        self,
        bucket: int,
        attributes: Mapping[str, Any],
        groups: Mapping[str, Mapping[str, Array]],
        *,
        part: int,
        parts: int,
    ) -> None:
        """Takes another part of the rows in, with all updates that came before it."""
        self.tables.put(groups, step=int(attributes["version"]))
        self.tables.arrives(bucket, part, parts)

    def restore(
        self,
        attributes: Mapping[str, Any],
        groups: Mapping[str, Mapping[str, Array]],
        buckets: Mapping[str, int],
        saved: SavedTables | None,
        mask: Mask,
    ) -> None:
        """Takes some buckets from files: dense arrays, which become its own, and tables."""
        self._take(groups, {**_all_buckets(groups), **buckets})
        self.tables.restore_from(saved, mask, step=int(attributes.get("version", 0)))
        try:
            kept = self._adopt(attributes)
        except OptimizerNotFound:
            # The user's own, and gone. Whether that matters turns out when a worker says what this job trains with.
            kept = True
        self.tables.put(
            {group: members for group, members in groups.items() if group.startswith(WAITING_PREFIX)}
        )
        self.histories.put(UpdateHistory.of_attributes(mask.copy(), {**attributes, "initialized": True}))
        (history,) = self.histories.select(mask)
        if self._rule is None:
            history.waiting = 0
        elif not kept:
            history.step = 0
        # The job may wait for fewer gradients now than the one that made the checkpoint.
        if history.waiting and (
            not self._settings.synchronous or history.waiting >= self._settings.grads_to_wait
        ):
            self._apply_waiting(history)

    def _adopt(self, attributes: Mapping[str, Any]) -> bool:
        """Takes the optimizer and the tables of the previous servers, if there are none here, or if a worker has said
        there what this job has, and not here yet. False: new slots.
        """
        kept = True
        optimizer, confirmed = attributes.get("optimizer"), bool(attributes.get("confirmed"))
        first = confirmed and not self._optimizer_confirmed
        if optimizer and (self._rule is None or (first and dict(optimizer) != self.optimizer)):
            config = ps_pb2.OptimizerConfig(**optimizer)
            kept = self._use_optimizer(
                dict(optimizer), make_optimizer(config, model_zoo=self._settings.model_zoo)
            )
        if self._rule is not None:
            known = attributes.get("tables", {})
            specs = [TableDescription.of_json(name, document).spec for name, document in known.items()]
            if self._optimizer_confirmed and not confirmed:
                specs = self.tables.unknown(specs)
            self._declare(specs, first=first)
        return kept

    def drop(self, mask: Mask) -> None:
        """Forgets some buckets, as if they had never been here."""
        names = [name for name, bucket in self.buckets.items() if mask[bucket]]
        self.dense.drop(names)
        for name in names:
            del self.buckets[name]
        self.tables.drop(mask)
        self.histories.put(UpdateHistory(mask=mask.copy()))


def _document(optimizer: ps_pb2.OptimizerConfig) -> dict[str, Any]:
    document = {"name": optimizer.name, "flavor": optimizer.flavor, "options": dict(optimizer.options)}
    return {**document, "source": optimizer.source} if optimizer.source else document


def _chosen(arrays: Mapping[str, Array], buckets: Mapping[str, int], mask: Mask) -> dict[str, Array]:
    """The arrays in some buckets; and those of unknown buckets, so that they are found out."""
    if mask.all():
        return dict(arrays)
    return {name: array for name, array in arrays.items() if name not in buckets or mask[buckets[name]]}


def _copies(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: np.array(array, order="C") for name, array in arrays.items()}


def _all_buckets(groups: Mapping[str, Mapping[str, Array]]) -> dict[str, int]:
    found = buckets_of_names(
        {
            group: {name: array.nbytes for name, array in groups.get(group, {}).items()}
            for group in (TRAINABLE, STATE)
        }
    )
    return {**found[STATE], **found[TRAINABLE]}
