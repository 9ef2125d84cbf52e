"""Pods are requested concurrently, not one after the other: an API server that answers only once all have asked
makes them all the same, at the start of a job and when all of its pods are deleted.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.master import Master
from elasticdl.platforms.kubernetes.client import Cluster
from elasticdl.platforms.kubernetes.kubeconfig import Access, Identity
from elasticdl.platforms.kubernetes.kubernetes_platform import KubernetesPlatform

MANY = 30
# Nothing is asserted about time: this ends the test where a request waits for the answer to another one.
PATIENCE_SECONDS = 30.0


class Api:
    """Takes pods, and answers only when `MANY` have been asked for since it answered last."""

    def __init__(self) -> None:
        self.held: list[tuple[dict[str, Any], asyncio.StreamWriter]] = []
        self.pods: list[dict[str, Any]] = []
        self.all_asked = asyncio.Condition()
        # None: there will be no more news.
        self.news: asyncio.Queue[tuple[str, dict[str, Any]] | None] = asyncio.Queue()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        sizes = [line for line in head.splitlines() if line.lower().startswith("content-length")]
        body = await reader.readexactly(int(sizes[0].split(":")[1]) if sizes else 0)
        method, path, _ = head.split("\r\n", 1)[0].split(" ")
        if "watch=true" in path:
            await self._watch(writer)
        elif method == "POST" and path.endswith("/pods"):
            async with self.all_asked:
                self.held.append((json.loads(body), writer))
                self.all_asked.notify_all()
        else:
            await _send(writer, {"metadata": {"resourceVersion": "1"}, "items": []})

    async def make_all(self) -> None:
        async with self.all_asked:
            await self.all_asked.wait_for(lambda: len(self.held) == MANY)
            held, self.held = self.held, []
        self.pods = []
        for pod, writer in held:
            about = {**pod["metadata"], "uid": pod["metadata"]["name"], "resourceVersion": "2"}
            (container,) = pod["spec"]["containers"]
            running = [{"name": container["name"], "state": {"running": {}}}]
            state = {"phase": "Running", "containerStatuses": running}
            made = {**pod, "metadata": about, "status": state}
            self.pods.append(made)
            self.news.put_nowait(("ADDED", made))
            await _send(writer, made)

    def delete_all(self) -> None:
        for pod in self.pods:
            self.news.put_nowait(("DELETED", pod))

    def names(self) -> set[str]:
        return {pod["metadata"]["name"] for pod in self.pods}

    async def _watch(self, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 W\r\nTransfer-Encoding: chunked\r\n\r\n")
        while change := await self.news.get():
            line = json.dumps({"type": change[0], "object": change[1]}).encode() + b"\n"
            writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            await writer.drain()


async def _send(writer: asyncio.StreamWriter, document: dict[str, Any]) -> None:
    text = json.dumps(document).encode()
    writer.write(
        f"HTTP/1.1 200 W\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode() + text
    )
    await writer.drain()
    writer.close()


def workers(first: int) -> set[str]:
    return {f"many-edljob-worker-{number}" for number in range(first, first + MANY)}


async def scenario(folder: Path) -> None:
    api = Api()
    server = await asyncio.start_server(api.answer, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    access = Access(
        server=f"http://{host}:{port}",
        namespace="lab",
        tls=ssl.create_default_context(),
        identity=Identity(token="secret"),
        inside=True,
    )
    spec = JobSpec.build(job_name="many", image_name="i", job_command="x", num_workers=MANY)
    owner = {"kind": "ConfigMap", "metadata": {"name": "elasticdl-many", "uid": "1"}}
    async with Cluster(access, patience=PATIENCE_SECONDS) as cluster:
        platform = KubernetesPlatform(cluster, spec, owner=owner)
        master = Master(spec=spec, folder=folder, platform=platform, token="t", environment={})
        master.recover()
        running = asyncio.create_task(master.run())
        try:
            await asyncio.wait_for(api.make_all(), PATIENCE_SECONDS)
            assert api.names() == workers(0)
            api.delete_all()
            await asyncio.wait_for(api.make_all(), PATIENCE_SECONDS)
            assert api.names() == workers(MANY)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await platform.close()
            api.news.put_nowait(None)
    server.close()


def test_each_is_asked_for_before_the_first_is_made(tmp_path: Path) -> None:
    asyncio.run(scenario(tmp_path))
