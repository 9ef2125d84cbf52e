"""A model on parameter servers, shared with the other workers.

Where the model has tables and training is asynchronous, no batch waits for the servers: while a batch is computed with,
the gradients of the one before are pushed, the values for the one after are pulled behind that push, and so are the
rows that it will look up (`row_prefetcher.py`). So a batch is computed with values that its predecessor has not
changed yet: asynchronous training is that anyway, as soon as there are two workers. One push is on its way at most.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.checkpoint_folders import find_checkpoint
from elasticdl.ps.client.parameter_client import ParameterClient, StaleGradients, Values
from elasticdl.ps.core.bucket_versions import NOTHING_PULLED
from elasticdl.ps.core.tensors import find_not_finite
from elasticdl.ps.embedding.lookups import Lookups
from elasticdl.ps.storage.local_tables import LocalTables
from elasticdl.worker.model.background_exchange import Exchange
from elasticdl.worker.model.model_store import Model, of_another_model
from elasticdl.worker.model.row_prefetcher import RowsAhead
from elasticdl.worker.trainer import Batch, Parameters, Trainer

log = logging.getLogger("elasticdl.worker")


class ServedModel(Model):
    def __init__(
        self,
        trainer: Trainer,
        client: ParameterClient,
        *,
        pull_every: int,
        restore_from: str,
        asynchronous: bool = False,
        nudge: Callable[[], None] = lambda: None,
        beginning: Parameters | None = None,
    ) -> None:
        """`restore_from`: the checkpoint that the servers have their values from, if any. `nudge` is called when a
        push in the background has failed. `beginning`: that of this worker's model before this one.
        """
        self._trainer = trainer
        self._client = client
        self._restore_from = restore_from
        # The initial values of the model. If it is lost before there is a checkpoint, the training restarts,
        # and by then what is in the trainer has been trained.
        self.beginning = beginning
        self._pull_every = pull_every
        self._asynchronous = asynchronous
        self._lookups = Lookups(client)
        self._exchange = Exchange(nudge=nudge)
        self._ahead: RowsAhead | None = None
        # For what both threads change: what the exchange has pulled, for the next batch; the newest step that is known;
        # and the pushes, one at most, that have been given to the exchange and are not part of that yet.
        self._between = threading.Lock()
        self._pulled: Values | None = None
        self._step = 0
        self._under_way = 0
        self._since_pull = 0
        self._versions = NOTHING_PULLED
        self._ready = False
        # A batch was passed over. What it has left in the model that is not trained, such as moving averages, must go:
        # the next pull is of everything.
        self._spoiled = False
        # Untrained values that were never finite: masks, for instance.
        self._never_finite: frozenset[str] = frozenset()

    def prepare(self, batch: Batch) -> None:
        if self._ready:
            return
        self._trainer.build(batch)
        mine = self.beginning or self._trainer.parameters()
        self.beginning = None if self._restore_from else mine
        tables = self._trainer.tables
        try:
            self._client.initialize(
                mine.trainable, mine.state, self._trainer.optimizer_config(), tables.specs
            )
        except UserError as error:
            if self._restore_from:
                raise of_another_model(find_checkpoint(self._restore_from), error) from error
            raise
        if tables:
            tables.join(self._lookups)
            if self._asynchronous:
                self._ahead = self._lookups.ahead = RowsAhead(self._client, self._trainer.features)
        self._pull()
        if self._client.tolerant:
            self._never_finite = frozenset(
                name for name, array in self._trainer.state().items() if find_not_finite({name: array})
            )
        self._ready = True

    def _pull(self) -> None:
        self._use(self._pull_values())
        self._since_pull = 0

    def _pull_values(self) -> Values:
        spoiled, self._spoiled = self._spoiled, False
        return self._client.pull(known_versions=NOTHING_PULLED if spoiled else self._versions)

    def _use(self, pulled: Values) -> None:
        self._versions = pulled.versions
        with self._between:
            # Values pulled before the last push are of an older step.
            self._step = max(self._step, int(pulled.versions.max()))
        if pulled.trainable:
            self._trainer.set_parameters(
                Parameters(trainable=dict(pulled.trainable), state=dict(pulled.state))
            )

    def train(
        self,
        batch: Batch,
        *,
        position: int,
        batches: int,
        applied: Callable[[float], None] | None = None,
        upcoming: Batch | None = None,
    ) -> float:
        if self._ahead is not None:
            return self._train_ahead(self._ahead, batch, position, batches, applied, upcoming)
        if self._since_pull >= self._pull_every or self._spoiled:
            self._pull()
        self._since_pull += 1
        while True:
            loss, gradients = self._trainer.gradients(batch)
            try:
                self._push(batch, gradients, position, batches)()
            except StaleGradients:
                # Others were faster: the same batch again with the values of now.
                self._pull()
                continue
            if applied is not None:
                applied(loss)
            return loss

    def _train_ahead(
        self,
        ahead: RowsAhead,
        batch: Batch,
        position: int,
        batches: int,
        applied: Callable[[float], None] | None,
        upcoming: Batch | None,
    ) -> float:
        with self._between:
            pulled, self._pulled = self._pulled, None
        if pulled is not None:
            self._use(pulled)
        ahead.begin(batch, upcoming)
        loss, gradients = self._trainer.gradients(batch)
        ahead.learn(batch)
        push = self._push(batch, gradients, position, batches)
        self._since_pull += 1
        pulls = self._since_pull >= self._pull_every
        if pulls:
            self._since_pull = 0

        def exchange() -> None:
            push()
            if applied is not None:
                applied(loss)
            if pulls or self._spoiled:
                values = self._pull_values()
                with self._between:
                    self._pulled = values

        self.settle()
        with self._between:
            self._under_way = 1
        self._exchange.give(exchange)
        return loss

    def _push(
        self, batch: Batch, gradients: dict[str, Any], position: int, batches: int
    ) -> Callable[[], None]:
        """The push of a batch's gradients, with everything that belongs to it as it is now."""
        state = self._trainer.state()
        spoiled = self._client.tolerant and self._is_spoiled(state)
        if spoiled:
            state = {}
        arguments: dict[str, Any] = {
            "state": state,
            "learning_rate": self._trainer.learning_rate(self.step),
            "versions": self._versions,
            "lease_id": batch.shard.lease_id,
            # A part of a shard without order inside cannot be credited if this worker dies now; the shards before it
            # can.
            "position": position if batch.last or not batch.atomic else batch.shard.start,
            "batches": batches,
            "applied": batch.shard.applied,
            "rows": self._trainer.row_gradients(),
        }

        def push() -> None:
            # Not before: another thread may be at the pull behind the push before.
            self._spoiled = self._spoiled or spoiled
            reached = self._client.push(gradients, **arguments)
            with self._between:
                self._step, self._under_way = max(self._step, reached), 0
            if self._client.passed_over is not None:
                self._spoiled = True
                log.warning(
                    "The gradient of %s is not finite (NaN or infinity): this batch has no effect. So far %d had none.",
                    *self._client.passed_over,
                )

        return push

    def _is_spoiled(self, state: dict[str, Any]) -> bool:
        usual = {name: array for name, array in state.items() if name not in self._never_finite}
        return find_not_finite(usual) is not None

    def settle(self) -> None:
        self._exchange.settle()

    @property
    def failed(self) -> bool:
        return self._exchange.failed

    @property
    def is_asynchronous(self) -> bool:
        return self._ahead is not None

    def freeze(self, name: str) -> None:
        self.settle()
        frozen = self._client.pull(frozen=name)
        self._trainer.set_parameters(Parameters(trainable=dict(frozen.trainable), state=dict(frozen.state)))
        self._lookups.frozen = name
        self._versions = NOTHING_PULLED
        self._pulled = None

    def thaw(self) -> None:
        self.settle()
        self._lookups.frozen = ""
        self._pulled = None
        self._pull()

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        tables = self._trainer.tables
        if not tables:
            yield
            return
        own = LocalTables(tables.specs)
        for spec in tables.specs:
            for ids, values in self._client.table_rows(spec.name):
                own.put(spec.name, ids, values)
        tables.keep(own)
        try:
            yield
        finally:
            tables.join(self._lookups)

    @property
    def step(self) -> int:
        """Returns the step including the push in flight, so that it does not depend on the duration of pushes."""
        with self._between:
            return self._step + self._under_way

    def close(self) -> None:
        self._exchange.close()
        if self._ahead is not None:
            self._ahead.close()
        self._client.close()
