"""The parameter servers of a job, as its master sees them: frozen, saved, fenced, all together.

For the master's event loop. Errors are gRPC's own: the master knows best what the loss of a server means. All
calls may be repeated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from elasticdl.ps.checkpoint.checkpoint_folders import SavedFile, file_name
from elasticdl.ps.core.buckets import bucket_bits, buckets_in
from elasticdl.wire import ps_pb2
from elasticdl.wire.channel import open_aio_channel
from elasticdl.wire.ps_pb2_grpc import ParameterServerStub

log = logging.getLogger("elasticdl.master")

# A server answers these within the time of one update, unless it is gone.
_SECONDS = 30.0

_Reply = TypeVar("_Reply")


class Coordinator:
    """Calls to servers at given addresses, by the servers' numbers. To be used inside one event loop."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        await asyncio.gather(*(channel.close(None) for channel in channels))

    async def freeze_all(
        self,
        addresses: Mapping[int, str],
        name: str,
        generation: int,
        *,
        map_version: int = 0,
        flush: bool = False,
    ) -> dict[int, int]:
        """Keeps a copy of everything under a name, and returns the versions. The servers have that map, or a newer one.

        With `flush` gradients that still wait for others in synchronous training are applied first: by all servers,
        before any of them freezes, since each has copies of others' buckets.
        """
        if flush:
            first = ps_pb2.FlushRequest(generation=generation, map_version=map_version)
            await self._all(addresses, lambda stub, _: stub.Flush(first, timeout=_SECONDS))
        request = ps_pb2.FreezeRequest(name=name, generation=generation, flush=flush, map_version=map_version)
        replies = await self._all(addresses, lambda stub, _: stub.Freeze(request, timeout=_SECONDS))
        return {number: reply.version for number, reply in replies.items()}

    async def release_all(self, addresses: Mapping[int, str], name: str) -> None:
        """Releases a snapshot. A server that cannot be reached has none to release."""

        async def release(stub: Any, number: int) -> None:
            try:
                await stub.Release(ps_pb2.ReleaseRequest(name=name), timeout=_SECONDS)
            except grpc.RpcError as error:
                log.info("Server %d cannot be reached to release %s: %s", number, name, describe_error(error))

        await self._all(addresses, release)

    async def save_all(
        self,
        addresses: Mapping[int, str],
        name: str,
        folder: Path,
        *,
        buckets: Mapping[int, Sequence[int]] | None = None,
        since: str = "",
    ) -> tuple[list[SavedFile], bool]:
        """Writes a copy to a folder, one file a server, of the buckets given for each.

        Of tables only what has changed `since` an earlier copy is written, as far as servers know; the second of the
        outcome is false if there is some such. RESOURCE_EXHAUSTED: a file cannot be written there.
        """

        order = sorted(addresses)

        async def save(stub: Any, number: int) -> tuple[SavedFile, bool]:
            file = file_name(order.index(number), len(order))
            # However long the disk takes; a server that is gone is noticed by the connection.
            request = ps_pb2.SaveRequest(
                name=name,
                path=str(folder.absolute() / file),
                buckets=(buckets or {}).get(number, ()),
                since=since,
            )
            reply = await stub.Save(request)
            return SavedFile(name=file, bytes=reply.bytes, crc32=reply.crc32), reply.complete

        # Without all of the files the others are useless: servers that still write one stop.
        saved = await self._all(addresses, save, all_or_none=True)
        return [saved[number][0] for number in order], all(complete for _, complete in saved.values())

    async def fence_all(
        self, addresses: Mapping[int, str], worker: str, generation: int
    ) -> ps_pb2.FenceReply:
        """Takes nothing more from a worker, and returns its last batch that the buckets in the reply have had.

        A server that cannot be asked reports none; the others take nothing more all the same.
        """
        request = ps_pb2.FenceRequest(worker=worker, generation=generation)

        async def ask(stub: Any, number: int) -> ps_pb2.FenceReply:
            try:
                reply: ps_pb2.FenceReply = await stub.Fence(request, timeout=_SECONDS)
            except (grpc.RpcError, asyncio.TimeoutError) as error:
                log.info(
                    "Server %d cannot report the last push of %s yet: %s",
                    number,
                    worker,
                    describe_error(error),
                )
                return ps_pb2.FenceReply()
            return reply

        return in_common((await self._all(addresses, ask)).values())

    async def status_all(
        self, addresses: Mapping[int, str], *, figures: bool = False, seconds: float = _SECONDS
    ) -> dict[int, ps_pb2.ServerStatusReply]:
        """Returns the status of the servers that answer in time. `figures`: include the counters."""
        request = ps_pb2.ServerStatusRequest(figures=figures)

        async def ask(stub: Any, number: int) -> ps_pb2.ServerStatusReply | None:
            try:
                reply: ps_pb2.ServerStatusReply = await stub.ServerStatus(request, timeout=seconds)
            except grpc.RpcError as error:
                log.debug("Server %d does not report its status: %s", number, describe_error(error))
                return None
            return reply

        replies = await self._all(addresses, ask)
        return {number: reply for number, reply in replies.items() if reply is not None}

    async def _all(
        self,
        addresses: Mapping[int, str],
        call: Callable[[Any, int], Awaitable[_Reply]],
        *,
        all_or_none: bool = False,
    ) -> dict[int, _Reply]:
        """Raises the error of the first that has one, when all have answered.

        `all_or_none`: as soon as there is one, and the calls to the others are given up.
        """
        for address in addresses.values():
            if address not in self._channels:
                self._channels[address] = open_aio_channel(address, self._token)
        stubs = {
            number: ParameterServerStub(self._channels[address])  # type: ignore[no-untyped-call]
            for number, address in addresses.items()
        }
        calls = [asyncio.ensure_future(call(stub, number)) for number, stub in stubs.items()]
        if not all_or_none:
            # Every server is called, whatever others answer.
            await asyncio.gather(*calls, return_exceptions=True)
        try:
            replies = await asyncio.gather(*calls)
        except BaseException:
            for each in calls:
                each.cancel()
            raise
        return dict(zip(stubs, replies, strict=True))


def describe_error(error: BaseException) -> str:
    """Describes an error in one line of a log; gRPC's own description takes several."""
    return (error.details() or str(error.code())) if isinstance(error, grpc.RpcError) else "no answer"


def in_common(replies: Iterable[ps_pb2.FenceReply]) -> ps_pb2.FenceReply:
    """The last batch that all buckets of these replies have had, and what some of them have had after it."""
    given = [reply for reply in replies if reply.buckets]
    last = min(given, key=lambda reply: reply.sequence, default=ps_pb2.FenceReply())
    # By sequence number: the batch, and the buckets that have had it and none after it.
    batches: dict[int, tuple[ps_pb2.FenceReply | ps_pb2.PartialBatch, set[int]]] = {}
    for reply in given:
        own = set(reply.buckets)
        for newer in reply.newer:
            theirs = buckets_in(newer.buckets)
            own -= theirs
            batches.setdefault(newer.sequence, (newer, set()))[1].update(theirs)
        batches.setdefault(reply.sequence, (reply, set()))[1].update(own)
    return ps_pb2.FenceReply(
        sequence=last.sequence,
        lease_id=last.lease_id,
        position=last.position,
        batches=last.batches,
        buckets=sorted({bucket for reply in given for bucket in reply.buckets}),
        newer=[
            ps_pb2.PartialBatch(
                sequence=sequence,
                lease_id=batch.lease_id,
                position=batch.position,
                batches=batch.batches,
                buckets=bucket_bits(buckets),
            )
            for sequence, (batch, buckets) in sorted(batches.items())
            if sequence > last.sequence
        ],
    )
