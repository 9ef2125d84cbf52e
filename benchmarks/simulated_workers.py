"""Many workers of a job in one process, without a model: they wait instead of computing.

`python -m benchmarks.simulated_workers ADDRESS TOKEN_FILE FIRST COUNT OPTIONS` simulates COUNT workers from
worker-FIRST on; OPTIONS is JSON: size, batches (of a shard), batch_seconds, workers (of the job). Each worker has its
own connection, follows its directives, leases a shard while it works on the previous one, reports at the end of a
shard, and in between as often as a worker of a job of that size does (`pace.py`). Commands on standard input:

    measure              prints JSON: the latencies of all leases since the last such command, and the shards done
    kill NAME NAME ...   these workers close their connections and stop reporting; prints their shards
    join NAME NAME ...   further workers join

The data set must be large: a lease that the master holds back until there is work says nothing about its speed.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
import uuid

import grpc.aio

from elasticai_api.common.pace import REPORTS_A_SECOND
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire.channel import open_aio_channel, read_token
from elasticdl.wire.master_pb2_grpc import MasterStub


class SimulatedWorker:
    def __init__(
        self,
        *,
        name: str,
        address: str,
        token: str,
        size: int,
        batches: int,
        batch_seconds: float,
        pause: float,
    ) -> None:
        self.name = name
        self.held: dict[int, tuple[int, int]] = {}
        self.lease_seconds: list[float] = []
        self.shards_done = 0
        self._channel = open_aio_channel(address, token)
        self._stub = MasterStub(self._channel)  # type: ignore[no-untyped-call]
        self._size = size
        self._batches, self._batch_seconds = batches, batch_seconds
        self._pause, self._reported_at = pause, time.monotonic()
        self._requests = self._reports = 0
        self._generation = 1
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        incarnation = uuid.uuid4().hex
        join = pb.JoinRequest(node=self.name, role="worker", incarnation=incarnation)
        await self._stub.Join(join, wait_for_ready=True)
        watch = self._stub.Watch(pb.WatchRequest(node=self.name, incarnation=incarnation))
        self._generation = (await watch.read()).generation
        await self._stub.Announce(pb.AnnounceRequest(node=self.name, dataset="training", size=self._size))
        self._tasks = [asyncio.create_task(self._follow(watch)), asyncio.create_task(self._train())]

    async def kill(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._channel.close(None)

    async def _follow(self, watch: grpc.aio.UnaryStreamCall[pb.WatchRequest, pb.Directive]) -> None:
        async for directive in watch:
            self._generation = directive.generation

    async def _train(self) -> None:
        upcoming = asyncio.create_task(self._lease())
        # Spread over time.
        await asyncio.sleep(random.random() * self._batches * self._batch_seconds)
        while True:
            shards = await upcoming
            upcoming = asyncio.create_task(self._lease())
            for shard in shards:
                await self._work(shard)

    async def _lease(self) -> list[pb.Shard]:
        self._requests += 1
        begun = time.perf_counter()
        reply = await self._stub.Lease(
            pb.LeaseRequest(
                node=self.name,
                dataset="training",
                max_shards=1,
                request_id=self._requests,
                generation=self._generation,
                wait=True,
            )
        )
        self.lease_seconds.append(time.perf_counter() - begun)
        for shard in reply.shards:
            self.held[shard.lease_id] = (shard.start, shard.end)
        return list(reply.shards)

    async def _work(self, shard: pb.Shard) -> None:
        size = shard.end - shard.start
        for number in range(1, self._batches + 1):
            await asyncio.sleep(self._batch_seconds)
            is_last = number == self._batches
            if is_last or time.monotonic() - self._reported_at >= self._pause:
                position = shard.start + size * number // self._batches
                self._reported_at = time.monotonic()
                self._reports += 1
                progress = pb.Progress(lease_id=shard.lease_id, position=position, batches=number)
                await self._stub.Report(
                    pb.ReportRequest(
                        node=self.name,
                        generation=self._generation,
                        progress=[progress],
                        report_id=self._reports,
                        batch_seconds=self._batch_seconds,
                        loss_sum=float(number),
                        loss_batches=number,
                    )
                )
        self.held.pop(shard.lease_id)
        self.shards_done += 1


async def main(address: str, token_file: str, first: int, count: int, options: dict[str, float]) -> None:
    token = read_token(token_file)
    workers: dict[str, SimulatedWorker] = {}

    async def start(names: list[str]) -> None:
        for name in names:
            workers[name] = SimulatedWorker(
                name=name,
                address=address,
                token=token,
                size=int(options["size"]),
                batches=int(options["batches"]),
                batch_seconds=options["batch_seconds"],
                pause=options["workers"] / REPORTS_A_SECOND,
            )
        # A few at a time, as nodes join.
        for begin in range(0, len(names), 20):
            await asyncio.gather(*(workers[name].start() for name in names[begin : begin + 20]))

    await start([f"worker-{number}" for number in range(first, first + count)])
    print("ready", flush=True)
    loop = asyncio.get_running_loop()
    while words := (await loop.run_in_executor(None, sys.stdin.readline)).split():
        answer: object
        if words[0] == "measure":
            answer = {
                "lease_seconds": [second for each in workers.values() for second in each.lease_seconds],
                "shards": sum(each.shards_done for each in workers.values()),
            }
            for each in workers.values():
                each.lease_seconds, each.shards_done = [], 0
        elif words[0] == "kill":
            victims = [workers.pop(name) for name in words[1:]]
            await asyncio.gather(*(victim.kill() for victim in victims))
            answer = [shard for victim in victims for shard in victim.held.values()]
        else:
            await start(words[1:])
            answer = len(words) - 1
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _address, _token_file, _first, _count, _options = sys.argv[1:]
    asyncio.run(main(_address, _token_file, int(_first), int(_count), json.loads(_options)))
