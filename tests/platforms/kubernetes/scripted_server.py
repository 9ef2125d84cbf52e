"""An API server that replies by a script: restarts, overload, broken connections, expired versions."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from elasticdl.platforms.kubernetes.client import Cluster
from elasticdl.platforms.kubernetes.kubeconfig import Access, Identity

Reply = tuple[int, dict[str, str], bytes]
HANG_UP: Reply = (0, {}, b"")


def reply(status: int, body: Any = None, **headers: str) -> Reply:
    text = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, text


def refusal(status: int, reason: str, message: str, **headers: str) -> Reply:
    return reply(status, {"kind": "Status", "reason": reason, "message": message}, **headers)


def config_map(name: str, version: int, *, uid: str = "u", **data: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version), "uid": uid}, "data": data}


def listing(version: int, *items: dict[str, Any], more: str = "") -> Reply:
    """`more`: the continue token of a page that is not the last."""
    metadata = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    return reply(200, {"metadata": metadata, "items": list(items)})


def watch_events(*lines: tuple[str, dict[str, Any]], cut: bool = False) -> Reply:
    text = b"".join(json.dumps({"type": kind, "object": item}).encode() + b"\n" for kind, item in lines)
    return reply(200, text[:-20] if cut else text)


def access_to(port: int) -> Access:
    return Access(
        server=f"http://127.0.0.1:{port}",
        namespace="lab",
        tls=ssl.create_default_context(),
        identity=Identity(token="secret"),
        inside=True,
    )


@dataclass
class ScriptedServer:
    """Answers each request with the next reply of its script, and records the requests."""

    replies: list[Reply]
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    port: int = 0

    async def serve(self, scenario: Callable[[Cluster], Awaitable[None]], patience: float = 60.0) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            async with Cluster(access_to(self.port), patience=patience) as cluster:
                await asyncio.wait_for(scenario(cluster), 60)
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            (int(h.split(":")[1]) for h in head.splitlines() if h.lower().startswith("content-length")), 0
        )
        body = (await reader.readexactly(length)).decode()
        method, path, _ = head.split("\r\n", 1)[0].split(" ")
        self.asked.append((method, path, body))
        assert "authorization: bearer secret" in head.lower()
        if self.replies:
            status, headers, text = self.replies.pop(0)
            if status:
                lines = {"Content-Length": str(len(text)), "Connection": "close", **headers}
                head = f"HTTP/1.1 {status} Words\r\n" + "".join(f"{k}: {v}\r\n" for k, v in lines.items())
                writer.write(head.encode() + b"\r\n" + text)
                await writer.drain()
        else:
            await asyncio.sleep(3600)
        writer.close()


def play(
    replies: list[Reply], scenario: Callable[[Cluster], Awaitable[None]], patience: float = 60.0
) -> list[tuple[str, str, str]]:
    server = ScriptedServer(replies)
    asyncio.run(server.serve(scenario, patience))
    return server.asked
