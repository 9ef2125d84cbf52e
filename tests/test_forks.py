"""A process forked by a test does not hang on what masters of earlier tests left behind."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing

import grpc.aio


def test_forked_process_of_a_discarded_server_ends() -> None:
    async def leave_one() -> None:
        server = grpc.aio.server()
        server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await server.stop(0)
        itself = [server]
        itself.append(itself)  # type: ignore[arg-type]

    collected = gc.isenabled()
    gc.disable()
    try:
        asyncio.run(leave_one())
        child = multiprocessing.get_context("fork").Process(target=gc.collect)
        child.start()
    finally:
        if collected:
            gc.enable()
    child.join()
    assert child.exitcode == 0
