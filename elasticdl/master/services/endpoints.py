"""The ports of a master: one for the nodes of its job, and one for programs with the public client, without a token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticdl.jobs.sections.training import ALLREDUCE
from elasticdl.master.master import Master
from elasticdl.master.services.master_service import MasterService
from elasticdl.wire.channel import new_aio_server
from elasticdl.wire.master_pb2_grpc import add_MasterServicer_to_server

if TYPE_CHECKING:
    from elasticdl.wire.http2.server import UnaryServer

# For watchers to read the last word before the connection goes.
_GRACE_SECONDS = 0.5


class Servers:
    """The servers, made before their ports are known; calls are answered from `start` on."""

    def __init__(self, master: Master, token: str) -> None:
        self.own = new_aio_server(token)
        self.public: UnaryServer | None = None
        spec = master.spec
        add_MasterServicer_to_server(MasterService(master), self.own)  # type: ignore[no-untyped-call]
        if spec.training.distribution_strategy == ALLREDUCE:
            from elasticai_api.proto.allreduce_pb2_grpc import (
                add_AllReduceServicer_to_server as add_allreduce_calls,
            )
            from elasticdl.master.services.allreduce_service import AllReduceService

            add_allreduce_calls(AllReduceService(master), self.own)  # type: ignore[no-untyped-call]
        if spec.program == "command":
            from elasticai_api.proto.elasticai_api_pb2_grpc import (
                add_MasterServicer_to_server as add_shard_calls,
            )
            from elasticai_api.proto.progress_pb2_grpc import (
                add_ProgressServicer_to_server as add_progress_calls,
            )
            from elasticdl.master.services.shard_fetches import ShardFetches
            from elasticdl.master.services.shard_service import PublicShardService, ShardService

            fetches = ShardFetches(lambda lease: master.state.ledger.is_leased(lease))
            shards, public = ShardService(master, fetches), PublicShardService(master, fetches)
            master.supervisor.waits_for_shard = lambda worker: (
                shards.waiting[worker] + public.waiting[worker] > 0
            )
            add_shard_calls(shards, self.own)  # type: ignore[no-untyped-call]
            add_progress_calls(shards, self.own)  # type: ignore[no-untyped-call]
            if spec.model.public_client:
                from elasticdl.wire.http2.server import UnaryServer

                # The public package sends no token: it gets at the shards of this job, and at nothing else.
                self.public = UnaryServer()
                add_shard_calls(public, self.public)  # type: ignore[no-untyped-call]

    async def start(self) -> None:
        await self.own.start()
        if self.public is not None:
            await self.public.start()

    async def stop(self) -> None:
        await self.own.stop(grace=_GRACE_SECONDS)
        if self.public is not None:
            await self.public.stop(grace=_GRACE_SECONDS)
