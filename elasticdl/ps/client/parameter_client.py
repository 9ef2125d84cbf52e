"""The parameter servers of a job, as a worker sees them: one model, given once, pulled and pushed.

All servers are called at once, and what could not be done is tried again until it is, or until the worker has something
better to do: `stop` is asked all the time. How calls find their servers is in `call_session.py`.

Rows may be pulled by several threads, while another pulls or pushes: each call has a session, a set of connections of
its own.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.resharding import STATE, TRAINABLE, buckets_of_names
from elasticdl.ps.client.call_session import CallPolicy, CallSession, OutgoingCall, everything
from elasticdl.ps.client.calls import (
    ExportCall,
    PullCall,
    PullRowsCall,
    PushCall,
    Values,
    find_bad_rows,
    moved_of,
    share_of,
)
from elasticdl.ps.core.array_bodies import Mask, mask_of, pack
from elasticdl.ps.core.bucket_versions import NOTHING_PULLED, Versions
from elasticdl.ps.core.buckets import BUCKETS, first_map
from elasticdl.ps.core.tensors import Array, find_not_finite
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TRANSFER, Ids, TableSpec, as_ids
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.storage.table_set import NonFiniteGradient, check_names, to_config
from elasticdl.wire import ps_pb2
from elasticdl.wire.frames import Frame

# Buckets of an exported table per call: few, so that no message has much of a large table.
_BUCKETS_AT_ONCE = 8

__all__ = ["ParameterClient", "StaleGradients", "Values"]


class StaleGradients(Exception):
    """Synchronous training has moved on: pull, compute the same batch again, and push that."""

    def __init__(self) -> None:
        super().__init__("the gradients were computed on values that are too old")


class ParameterClient:
    """The client of one worker and one generation. For one thread at a time, but any number may pull rows."""

    def __init__(
        self,
        addresses: Sequence[str] = (),
        token: str = "",
        worker: str = "",
        *,
        generation: int = 0,
        routes: Callable[[], Routes] | None = None,
        stop: Callable[[], bool] = lambda: False,
        patience_seconds: float | None = None,
        last_sequence: int = 0,
        transfer: str = "float32",
        tolerant: bool = False,
    ) -> None:
        """`routes`: the newest map and addresses, asked all the time; else servers that stay, at `addresses`.

        `last_sequence`: the number of this worker's last batch, if it had another client in this generation.
        `transfer`: how rows and their gradients travel: float32, float16 or bfloat16. `tolerant`: a batch with
        gradients that are not finite is passed over, as long as the servers allow it.
        """
        if transfer not in TRANSFER:
            raise UserError(
                f"Rows cannot travel as {transfer!r}.", hint=f"They can as {', '.join(TRANSFER)}."
            )
        if routes is None:
            staying = Routes(map=first_map(len(addresses), replicas=1), addresses=dict(enumerate(addresses)))

            def routes() -> Routes:
                return staying

        self._routes = routes
        self._caller = CallPolicy(routes, token, stop=stop, patience_seconds=patience_seconds)
        self._worker = worker
        self._generation = generation
        self._sequence = last_sequence
        self._transfer = transfer
        self.tolerant = tolerant
        # The non-finite part of the last batch, if it was skipped, and the number of skipped batches.
        self.passed_over: tuple[str, int] | None = None
        self._refused: tuple[int, int, int] | None = None
        self._buckets: dict[str, dict[str, int]] | None = None
        self._widths: dict[str, int] = {}
        self._lock = threading.Lock()
        self._sessions: list[CallSession] = []
        self._idle: list[CallSession] = []

    def close(self) -> None:
        """No call may be in flight."""
        for session in self._sessions:
            session.close()

    @property
    def last_sequence(self) -> int:
        return self._sequence

    @contextlib.contextmanager
    def _session(self) -> Iterator[CallSession]:
        with self._lock:
            session = self._idle.pop() if self._idle else None
        if session is None:
            session = CallSession(self._caller)
            with self._lock:
                self._sessions.append(session)
        try:
            yield session
        finally:
            with self._lock:
                self._idle.append(session)

    # -- the model -------------------------------------------------------------------------------------------

    def initialize(
        self,
        trainable: Mapping[str, Array],
        state: Mapping[str, Array],
        optimizer: ps_pb2.OptimizerConfig,
        tables: Sequence[TableSpec] = (),
    ) -> bool:
        """Gives every server its share, unless another worker did; returns whether one did. Needed before `push`.

        Raises `UserError` if the servers hold another model than this.
        """
        check_names(tables)
        self._widths = {spec.name: spec.width for spec in tables}
        buckets = self._buckets = buckets_of_names(
            {
                TRAINABLE: {name: value.nbytes for name, value in trainable.items()},
                STATE: {name: value.nbytes for name, value in state.items()},
            }
        )
        configs = [to_config(spec) for spec in tables]
        done_before = False

        def prepare(routes: Routes, server: int, mask: Mask) -> OutgoingCall:
            heads, parts = share_of({TRAINABLE: trainable, STATE: state}, buckets, mask)
            request = ps_pb2.InitializeRequest(
                generation=self._generation, optimizer=optimizer, tables=configs, buckets=pack(mask)
            )
            request.arrays.extend(heads)
            return OutgoingCall(request.SerializeToString(), parts)

        def accept(server: int, mask: Mask, frame: Frame) -> Mask:
            nonlocal done_before
            reply = ps_pb2.InitializeReply.FromString(frame.head)
            done_before = done_before or reply.done_before
            return moved_of(reply.moved)

        with self._session() as session:
            session.call(call_codec.INITIALIZE, everything(), prepare, accept)
        return done_before

    def pull(self, *, frozen: str = "", known_versions: Versions = NOTHING_PULLED) -> Values:
        """The values of now, or of a copy-on-write snapshot; nothing where all buckets are at the versions known."""
        pulled = PullCall(self._generation, known_versions, frozen)
        with self._session() as session:
            session.call(call_codec.PULL, everything(), pulled.prepare, pulled.accept)
            if pulled.unchanged.any() and not pulled.unchanged.all():
                # Half a model is useless: pull the rest too, though it may be known.
                pulled.forget()
                session.call(call_codec.PULL, pulled.unchanged.copy(), pulled.prepare, pulled.accept)
        return pulled.values()

    # -- rows ------------------------------------------------------------------------------------------------

    def pull_rows(
        self, wanted: Mapping[str, Ids], *, frozen: str = "", create: bool = True
    ) -> dict[str, Array]:
        """The rows of different ids by table, of now or of a copy-on-write snapshot: float32, an id a row.

        Servers make rows when they are first trained, so `create` makes no difference: an id without a row has the
        values that its row will start with.
        """
        ids = {name: as_ids(given, what=name) for name, given in wanted.items()}
        for name in ids:
            self._check_table(name)
        pulled = PullRowsCall(self._generation, ids, self._widths, frozen, self._transfer)
        with self._session() as session:
            session.call(call_codec.PULL_ROWS, everything(), pulled.prepare, pulled.accept)
        return pulled.rows()

    def table_rows(self, name: str) -> Iterator[tuple[Ids, Array]]:
        """All ids of a table that have rows, and the rows: some buckets at a time."""
        self._check_table(name)
        for first in range(0, BUCKETS, _BUCKETS_AT_ONCE):
            exported = ExportCall(self._generation, name)
            with self._session() as session:
                wanted = mask_of(range(first, min(first + _BUCKETS_AT_ONCE, BUCKETS)))
                session.call(call_codec.EXPORT, wanted, exported.prepare, exported.accept)
            yield from exported.found

    def _check_table(self, name: str) -> None:
        if name not in self._widths:
            raise UserError(f"There is no table {name}: it was not in the model when it was given.")

    # -- pushes ----------------------------------------------------------------------------------------------

    def push(
        self,
        gradients: Mapping[str, Array],
        *,
        rows: Mapping[str, RowGradients] | None = None,
        state: Mapping[str, Array] | None = None,
        learning_rate: float,
        versions: Versions = NOTHING_PULLED,
        lease_id: int = 0,
        position: int = 0,
        batches: int = 0,
        applied: bytes = b"",
    ) -> int:
        """Has one batch applied, exactly once to every bucket, and returns the version that servers have come to.

        `versions` are those of the pull. Lease, position and batches tell which batch it was;
        `applied` are the buckets that have its samples already, packed. Raises `StaleGradients`
        if a server refused: the same batch then comes again. Raises `UserError` if the gradients are not finite; if
        that is tolerated, nothing of the batch is applied and `passed_over` tells it.
        """
        if self._buckets is None:
            raise ValueError("initialize comes before push")
        tables = {
            name: RowGradients(ids=as_ids(given.ids, what=name), values=given.values)
            for name, given in (rows or {}).items()
        }
        self._check(gradients, tables)
        bad = self._find_bad(gradients, tables)
        if bad is not None:
            if not self.tolerant:
                raise NonFiniteGradient.of(bad, worker=self._worker)
            gradients, tables, state = {}, {}, {}
        batch = (lease_id, position, batches)
        if self._refused not in (None, batch):
            # The batch that was refused does not come again. Some servers may have taken it: its number is
            # used up.
            self._sequence += 1
        head = ps_pb2.PushRequest(
            worker=self._worker,
            sequence=self._sequence + 1,
            learning_rate=learning_rate,
            lease_id=lease_id,
            position=position,
            batches=batches,
            generation=self._generation,
            not_finite=bad or "",
            applied_buckets=applied,
        )
        pushed = PushCall(
            head, {TRAINABLE: gradients, STATE: state or {}}, self._buckets, tables, self._transfer, versions
        )
        with self._session() as session:
            # To all of them, even those that own nothing of it: every bucket knows every worker's last batch.
            try:
                session.call(call_codec.PUSH, everything(), pushed.prepare, pushed.accept)
            except UserError:
                # Other servers may have applied it. The next push is another batch.
                self._sequence += 1
                self._refused = None
                raise
        if not pushed.accepted:
            self._refused = batch
            raise StaleGradients
        self._refused = None
        self._sequence += 1
        self.passed_over = (bad, pushed.refused) if bad is not None else None
        return pushed.reached

    def _find_bad(self, gradients: Mapping[str, Array], rows: Mapping[str, RowGradients]) -> str | None:
        """Finds non-finite gradients before any server has applied its part: either all servers reject a push, or
        none.
        """
        bad = find_not_finite(gradients)
        if bad is None and self.tolerant:
            bad = find_bad_rows(rows, self._transfer)
        elif bad is None and len(self._routes().map.asked) > 1:
            # One server finds out by itself.
            bad = find_not_finite({name: given.values for name, given in rows.items()})
        return bad

    def _check(self, gradients: Mapping[str, Array], rows: Mapping[str, RowGradients]) -> None:
        assert self._buckets is not None
        unknown = [name for name in gradients if name not in self._buckets[TRAINABLE]]
        if unknown:
            raise UserError(f"{unknown[0]} was not in the model when the parameter servers were given it.")
        for name, given in rows.items():
            width = self._widths.get(name)
            if width is None:
                raise UserError(f"There is no table {name}: it was not in the model when it was given.")
            if given.values.shape != (len(given.ids), width):
                raise UserError(
                    f"The gradient of the table {name} has shape {list(given.values.shape)} for "
                    f"{len(given.ids)} ids; its rows have {width} numbers."
                )
