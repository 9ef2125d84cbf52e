"""The calls of a worker to all servers: divides each among them, and merges their replies.

Each of these is made for one call, and used for all servers and all repetitions of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from elasticdl.ps import _kernels
from elasticdl.ps.checkpoint.resharding import STATE, TRAINABLE
from elasticdl.ps.client.call_session import OutgoingCall
from elasticdl.ps.client.id_partition import IdPartition, IdPartitions
from elasticdl.ps.core.array_bodies import BodyReader, Mask, describe, lay_out, pack, unpack
from elasticdl.ps.core.bucket_versions import (
    NOTHING_PULLED,
    UNKNOWN,
    Versions,
    of_wire,
    to_wire,
    within,
    write_down,
)
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.tensors import Array, raw_bytes
from elasticdl.ps.embedding.row_requests import RowGradients
from elasticdl.ps.embedding.table import TRANSFER, Ids, convert
from elasticdl.ps.protocol.call_codec import rows_parts
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.wire import ps_pb2
from elasticdl.wire.frames import Frame


@dataclass(frozen=True, kw_only=True)
class Values:
    """A model, as pulled: all of it, or nothing if no server had anything new. Arrays are read-only."""

    initialized: bool
    # To be given to the next pull and push.
    versions: Versions = field(default_factory=lambda: NOTHING_PULLED)
    trainable: Mapping[str, Array] = field(default_factory=dict)
    state: Mapping[str, Array] = field(default_factory=dict)


def moved_of(bits: bytes) -> Mask:
    """The buckets in an answer that another server owns."""
    return unpack(bits) if bits else np.zeros(BUCKETS, np.bool_)


def share_of(
    groups: Mapping[str, Mapping[str, Array]], buckets: Mapping[str, Mapping[str, int]], mask: Mask
) -> tuple[list[ps_pb2.ArrayHead], list[memoryview]]:
    """The dense arrays of some buckets, to be sent."""
    heads: list[ps_pb2.ArrayHead] = []
    arrays: list[Array] = []
    for group, members in groups.items():
        known = buckets[group]
        chosen = {name: array for name, array in members.items() if mask[known[name]]}
        found, given = describe({group: chosen}, known)
        heads += found
        arrays += given
    return heads, lay_out(arrays)


class PullCall:
    """The dense part of a model."""

    def __init__(self, generation: int, known: Versions, frozen: str = "") -> None:
        self._generation = generation
        self._known = known
        self.frozen = frozen
        self.unchanged = np.zeros(BUCKETS, np.bool_)
        self._initialized = True
        self._versions = NOTHING_PULLED.copy()
        self._groups: dict[str, dict[str, Array]] = {TRAINABLE: {}, STATE: {}}

    def forget(self) -> None:
        """Sends everything from now on, even if a server has it already."""
        self._known = NOTHING_PULLED

    def prepare(self, routes: Routes, server: int, mask: Mask) -> OutgoingCall:
        known, newer = within(self._known, mask)
        request = ps_pb2.PullRequest(
            frozen=self.frozen,
            # Where it is not the same of all (a worker has died in the middle of a push), they are all sent.
            known_version=UNKNOWN if newer else known,
            generation=self._generation,
            buckets=pack(mask),
        )
        return OutgoingCall(request.SerializeToString(), keep=True)

    def accept(self, server: int, mask: Mask, frame: Frame) -> Mask:
        reply = ps_pb2.PullReply.FromString(frame.head)
        moved = moved_of(reply.moved)
        done = mask & ~moved
        self.unchanged[done] = reply.unchanged
        if done.any():
            self._initialized = self._initialized and reply.initialized
            write_down(self._versions, done, reply.version, of_wire(reply.newer))
        for group, members in BodyReader(frame.body.toreadonly()).groups(reply.arrays).items():
            self._groups[group] |= members
        return moved

    def values(self) -> Values:
        return Values(
            initialized=self._initialized,
            versions=self._versions,
            trainable=self._groups[TRAINABLE],
            state=self._groups[STATE],
        )


class PullRowsCall:
    def __init__(
        self, generation: int, ids: Mapping[str, Ids], widths: Mapping[str, int], frozen: str, transfer: str
    ) -> None:
        self._generation = generation
        self._cuts = IdPartitions(ids)
        self._frozen = frozen
        self._transfer = transfer
        self._out = {
            name: np.empty((len(given), widths[name]), TRANSFER[transfer]) for name, given in ids.items()
        }
        # By server: rows that are received in another order than that of the ids.
        self._aside: dict[int, list[tuple[str, Array, Array]]] = {}

    def prepare(self, routes: Routes, server: int, mask: Mask) -> OutgoingCall:
        heads, body, into = [], [], []
        self._aside[server] = []
        for name, divided, pieces in self._cuts.of(routes.map, server, mask):
            parts = [divided.ids[piece] for piece in pieces]
            heads.append(ps_pb2.RowsHead(table=name, ids=sum(len(part) for part in parts)))
            body += rows_parts(parts)
            out = self._out[name]
            if divided.order is None:
                into += [raw_bytes(out[piece]) for piece in pieces]
            else:
                places = np.concatenate([divided.order[piece] for piece in pieces])
                rows = np.empty((len(places), out.shape[1]), out.dtype)
                self._aside[server].append((name, places, rows))
                into.append(raw_bytes(rows))
        request = ps_pb2.PullRowsRequest(
            frozen=self._frozen,
            generation=self._generation,
            rows=heads,
            buckets=pack(mask),
            dtype=self._transfer,
        )
        return OutgoingCall(request.SerializeToString(), body, into=into)

    def accept(self, server: int, mask: Mask, frame: Frame) -> Mask:
        moved = moved_of(ps_pb2.PullRowsReply.FromString(frame.head).moved)
        if moved.any():
            return mask
        for name, places, rows in self._aside[server]:
            self._out[name][places] = rows
        return moved

    def rows(self) -> dict[str, Array]:
        if self._transfer == "float32":
            return self._out
        return {name: convert(out, "float32", source=self._transfer) for name, out in self._out.items()}


class ExportCall:
    """All rows of a table in some buckets."""

    def __init__(self, generation: int, table: str) -> None:
        self._generation = generation
        self._table = table
        self.found: list[tuple[Ids, Array]] = []

    def prepare(self, routes: Routes, server: int, mask: Mask) -> OutgoingCall:
        request = ps_pb2.PullRowsRequest(
            generation=self._generation, rows=[ps_pb2.RowsHead(table=self._table)], buckets=pack(mask)
        )
        return OutgoingCall(request.SerializeToString(), keep=True)

    def accept(self, server: int, mask: Mask, frame: Frame) -> Mask:
        reply = ps_pb2.PullReply.FromString(frame.head)
        arrays = BodyReader(frame.body.toreadonly()).groups(reply.arrays).get(self._table, {})
        if arrays and len(arrays["ids"]):
            self.found.append((arrays["ids"], arrays["values"]))
        return moved_of(reply.moved)


class PushCall:
    def __init__(
        self,
        head: ps_pb2.PushRequest,
        groups: Mapping[str, Mapping[str, Array]],
        buckets: Mapping[str, Mapping[str, int]],
        rows: Mapping[str, RowGradients],
        transfer: str,
        versions: Versions,
    ) -> None:
        self._head = head
        self._groups = groups
        self._buckets = buckets
        self._cuts = IdPartitions({name: given.ids for name, given in rows.items()})
        self._values: dict[str, Array] = {
            name: _sendable(given.values, transfer) for name, given in rows.items()
        }
        self._transfer = transfer
        self._versions = versions
        self.accepted = True
        self.refused = 0
        # The newest version that a server has reported.
        self.reached = 0

    def prepare(self, routes: Routes, server: int, mask: Mask) -> OutgoingCall:
        request = ps_pb2.PushRequest()
        request.CopyFrom(self._head)
        request.version, newer = within(self._versions, mask)
        request.newer.extend(to_wire(newer))
        request.buckets = pack(mask)
        heads, body = share_of(self._groups, self._buckets, mask)
        request.arrays.extend(heads)
        for name, divided, pieces in self._cuts.of(routes.map, server, mask):
            values = self._ordered(divided, self._values[name])
            request.rows.append(
                ps_pb2.RowsHead(
                    table=name,
                    ids=sum(piece.stop - piece.start for piece in pieces),
                    dtype=self._transfer,
                    width=values.shape[1],
                )
            )
            body += rows_parts([divided.ids[piece] for piece in pieces])
            body += rows_parts([values[piece] for piece in pieces])
        return OutgoingCall(request.SerializeToString(), body)

    def _ordered(self, divided: IdPartition, values: Array) -> Array:
        return values if divided.order is None else values[divided.order]

    def accept(self, server: int, mask: Mask, frame: Frame) -> Mask:
        reply = ps_pb2.PushReply.FromString(frame.head)
        moved = moved_of(reply.moved)
        if (mask & ~moved).any():
            self.accepted = self.accepted and reply.accepted
            self.refused = max(self.refused, reply.refused)
            self.reached = max(self.reached, reply.version)
        return moved


def find_bad_rows(rows: Mapping[str, RowGradients], transfer: str) -> str | None:
    """A table with a gradient that is not finite, or would not be when it arrives."""
    for name, given in rows.items():
        values = _sendable(given.values, transfer)
        if values.size and _kernels.count_not_finite(values):
            return name
    return None


def _sendable(values: Array, transfer: str) -> Array:
    numbers = np.ascontiguousarray(values, dtype=np.float32)
    return numbers if transfer == "float32" else convert(numbers, transfer)
