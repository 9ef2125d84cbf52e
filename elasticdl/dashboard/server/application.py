"""The routes of the dashboard: its files, the data of its pages as JSON, and live updates of the same data.

    POST /api/session                     exchanges the token for a cookie
    GET  /api/jobs                        all jobs; of all namespaces, those that the user may see
    GET  /api/stream                      the same, live
    GET  /api/jobs/NAME                   one job
    GET  /api/jobs/NAME/stream            the same, live
    GET  /api/jobs/NAME/logs              lines of its logs: ?node=, ?contains=, ?tail=
    GET  /api/jobs/NAME/logs/stream       the same, followed until the job ends
    POST /api/jobs/NAME/actions/ACTION    scale, stop, resume, delete
    GET  /api/metrics                     the metrics of all active jobs, for Prometheus
    GET  /api/cluster                     machines, queue, decisions of the planner
    GET  /api/cluster/stream              the same, live
    GET  /api/cluster/what_if             the plan with one more job: ?min=, ?max=, ?cpu=, ?memory=, ?gpu=, ?priority=

`?namespace=` names a job of the cluster. `access.py` decides which requests come here.

Failure modes
    A job cannot be found or read: 404 with the reason. An action is refused: 409. A body is too large or no JSON: 400.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from elasticdl.catalog.job import Job
from elasticdl.dashboard.data.cluster_watch import ClusterWatch, WhatIfJob
from elasticdl.dashboard.data.job_rows import row_key
from elasticdl.dashboard.data.job_source import JobSource
from elasticdl.dashboard.data.job_watch import JobWatch
from elasticdl.dashboard.data.sections import PROBLEM, Sections, to_json
from elasticdl.dashboard.server.access import Access, Guard, RowFilter
from elasticdl.dashboard.server.actions import JobActions, act
from elasticdl.dashboard.server.feed import Feed, FeedEvent
from elasticdl.dashboard.server.log_stream import (
    LogPosition,
    LogRequest,
    check_node,
    follow_lines,
    read_lines,
)
from elasticdl.errors import UserError

PAGES = Path(__file__).parents[1] / "pages"
_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_LIST_SECONDS = 2.0
_JOB_SECONDS = 1.0
_CLUSTER_JOB_SECONDS = 3.0
_CLUSTER_SECONDS = 5.0
# A stream is opened again then, where an authorizer has to be asked whether it still may be.
_AUTHORIZED_STREAM_SECONDS = 300.0
# Documents of jobs that are kept for viewers that come back.
_FEEDS_KEPT = 32
_MOST_BODY_BYTES = 16 * 1024
_MOST_TAIL = 100_000

_Handler = Callable[[Request], Awaitable[Response]]


class Dashboard:
    """`application` is what a server runs."""

    def __init__(self, source: JobSource, access: Access) -> None:
        self._source = source
        self._access = access
        self._list = Feed(self._read_list, interval_seconds=_LIST_SECONDS)
        self._feeds: OrderedDict[str, Feed] = OrderedDict()
        self._cluster = ClusterWatch()
        self._cluster_feed = Feed(self._cluster.read, interval_seconds=_CLUSTER_SECONDS)
        self._actions = JobActions()
        self._closed = asyncio.Event()

    def application(self) -> ASGIApp:
        job = "/api/jobs/{name}"
        routes = [
            Route("/api/session", self._begin_session, methods=["POST"]),
            Route("/api/jobs", _reported(self._jobs)),
            Route("/api/stream", self._stream_jobs),
            Route(job, _reported(self._job)),
            Route(f"{job}/stream", self._stream_job),
            Route(f"{job}/logs", _reported(self._logs)),
            Route(f"{job}/logs/stream", _reported(self._stream_logs)),
            Route(f"{job}/actions/{{action}}", _reported(self._act), methods=["POST"]),
            Route("/api/metrics", _reported(self._metrics)),
            Route("/api/cluster", _reported(self._read_cluster)),
            Route("/api/cluster/stream", self._stream_cluster),
            Route("/api/cluster/what_if", _reported(self._what_if)),
            *_file_routes(PAGES),
        ]
        return Guard(Starlette(routes=routes), access=self._access)

    def close(self) -> None:
        """Ends all streams. To be called in the event loop."""
        self._closed.set()

    # -- data ------------------------------------------------------------------------------------------------

    async def _begin_session(self, request: Request) -> Response:
        answer = JSONResponse({"allows_actions": self._access.allows_actions})
        for cookie in self._access.session_cookies(request.headers):
            answer.headers.append("Set-Cookie", cookie)
        return answer

    async def _jobs(self, request: Request) -> Response:
        visible = self._visible(request)
        sections = await self._list.current()
        if visible is not None:
            sections = {key: text for key, text in sections.items() if await visible.sees(key, text)}
        rows = ",".join(text for key, text in sections.items() if key != PROBLEM)
        body = f'{{"jobs":[{rows}],"problem":{sections.get(PROBLEM, "null")}}}'
        return Response(body, media_type="application/json")

    async def _stream_jobs(self, request: Request) -> Response:
        return self._stream(self._list, request, visible=self._visible(request))

    def _visible(self, request: Request) -> VisibleRows | None:
        authorizer = self._access.authorizer
        rows = None if authorizer is None else authorizer.row_filter(request.headers)
        return None if rows is None else VisibleRows(rows)

    async def _job(self, request: Request) -> Response:
        return _document(await self._feed(request).current())

    async def _stream_job(self, request: Request) -> Response:
        return self._stream(self._feed(request), request)

    async def _logs(self, request: Request) -> Response:
        wanted = _log_request(request)

        async def read(job: Job) -> Response:
            await check_node(job, wanted)
            return JSONResponse({"lines": await read_lines(job, wanted), "names": await job.log_names()})

        answer: Response = await self._with_job(request, read)
        return answer

    async def _stream_logs(self, request: Request) -> Response:
        wanted = _log_request(request)
        position = LogPosition.parse(request.headers.get("last-event-id", ""))

        # Before the reply begins: what is not there is an error, and no empty stream.
        await self._with_job(request, lambda job: check_node(job, wanted))

        async def lines() -> AsyncGenerator[str, None]:
            name, namespace = _named(request)
            async with self._source.job(name, namespace) as job:
                async for batch, place in follow_lines(job, wanted, position):
                    if not batch:
                        yield ": alive\n\n"
                        continue
                    yield f"id: {place}\ndata: {to_json(batch)}\n\n"
            # The browser would come back otherwise.
            yield "event: end\ndata: {}\n\n"

        return self._event_stream(lines())

    async def _act(self, request: Request) -> Response:
        arguments = await _body(request)
        name = request.path_params["action"]

        async def work(job: Job) -> str:
            return await act(job, name, arguments)

        try:
            text = await self._actions.run(self._with_job(request, work, as_user=True))
        except UserError as error:
            return JSONResponse({"error": error.message, "hint": error.hint}, status_code=HTTPStatus.CONFLICT)
        return JSONResponse({"message": text})

    async def _metrics(self, request: Request) -> Response:
        return Response(await self._source.metrics(), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def _read_cluster(self, request: Request) -> Response:
        return _document(await self._cluster_feed.current())

    async def _stream_cluster(self, request: Request) -> Response:
        return self._stream(self._cluster_feed, request)

    async def _what_if(self, request: Request) -> Response:
        try:
            job = WhatIfJob.parse(request.query_params)
        except UserError as error:
            raise BadRequest(str(error)) from None
        return JSONResponse(await self._cluster.what_if(job))

    # -- inside ----------------------------------------------------------------------------------------------

    async def _read_list(self) -> Sections:
        found = await self._source.rows()
        sections = {key: to_json(row) for key, row in found.rows.items()}
        if found.problem:
            sections[PROBLEM] = to_json(found.problem)
        return sections

    def _stream(self, feed: Feed, request: Request, *, visible: VisibleRows | None = None) -> Response:
        # Which rows a user has seen is not known any more: all are sent again.
        last_id = request.headers.get("last-event-id", "") if visible is None else ""

        async def events() -> AsyncGenerator[str, None]:
            # How long a browser waits before it comes back, in milliseconds.
            yield "retry: 1000\n\n"
            async for event in feed.events(last_id):
                shown = event
                if event is not None and visible is not None:
                    try:
                        shown = await visible.part_of(event)
                    except UserError:
                        # The cluster cannot be asked who may see it. The browser comes back, and is refused.
                        return
                yield shown.to_stream() if shown is not None else ": alive\n\n"

        return self._event_stream(events())

    def _event_stream(self, parts: AsyncGenerator[str, None]) -> Response:
        return StreamingResponse(
            self._until_closed(parts),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def _until_closed(self, parts: AsyncGenerator[str, None]) -> AsyncIterator[str]:
        closed = asyncio.create_task(self._closed.wait())
        limit = None if self._access.authorizer is None else _AUTHORIZED_STREAM_SECONDS
        deadline = None if limit is None else asyncio.get_running_loop().time() + limit
        following: asyncio.Task[str] | None = None
        try:
            while True:
                following = asyncio.create_task(_next(parts))
                left = None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0.0)
                await asyncio.wait({closed, following}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if not following.done():
                    return
                try:
                    yield following.result()
                except StopAsyncIteration:
                    return
        finally:
            closed.cancel()
            if following is not None:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
            await parts.aclose()

    def _feed(self, request: Request) -> Feed:
        name, namespace = _named(request)
        key = row_key(name, namespace)
        feed = self._feeds.pop(key, None)
        if feed is None:
            watch = JobWatch(self._source, name, namespace, allows_actions=self._access.allows_actions)
            # Each reading of a job on the cluster is a few requests to its API server.
            interval = _CLUSTER_JOB_SECONDS if namespace else _JOB_SECONDS
            feed = Feed(watch.read, interval_seconds=interval)
        self._feeds[key] = feed
        for old in list(self._feeds)[:-_FEEDS_KEPT]:
            if not self._feeds[old].has_viewers:
                del self._feeds[old]
        return feed

    async def _with_job(
        self, request: Request, action: Callable[[Job], Awaitable[Any]], *, as_user: bool = False
    ) -> Any:
        """`as_user`: by the rights of the user on the cluster, not by those of the dashboard."""
        name, namespace = _named(request)
        authorizer = self._access.authorizer
        token = authorizer.user_token(request.headers) if as_user and authorizer is not None else ""
        async with self._source.job(name, namespace, token=token) as job:
            return await action(job)


class VisibleRows:
    """The rows of a list that one user may see."""

    def __init__(self, rows: RowFilter) -> None:
        self._rows = rows
        # Keys that the user has been sent: no other is said to be gone.
        self._shown: set[str] = set()

    async def sees(self, key: str, text: str) -> bool:
        if key == PROBLEM:
            return True
        namespace = key.partition("/")[0]
        # Most users may see all jobs of a namespace: then the row needs no parsing.
        if await self._rows.sees(namespace, ""):
            return True
        group = json.loads(text)["training_job"]
        return bool(group) and await self._rows.sees(namespace, group)

    async def part_of(self, event: FeedEvent) -> FeedEvent | None:
        """Returns what the user may see of an event; None if that is nothing."""
        found: dict[str, str | None] = {}
        for key, text in event.sections.items():
            if text is None and key in self._shown:
                found[key] = None
                self._shown.remove(key)
            elif text is not None and await self.sees(key, text):
                found[key] = text
                self._shown.add(key)
        return replace(event, sections=found) if found or event.is_whole else None


async def _next(parts: AsyncGenerator[str, None]) -> str:
    return await anext(parts)


def _named(request: Request) -> tuple[str, str]:
    return request.path_params["name"], request.query_params.get("namespace", "")


def _reported(handler: _Handler) -> _Handler:
    """Turns a `UserError` into a reply with its words."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except UserError as error:
            return JSONResponse(
                {"error": error.message, "hint": error.hint}, status_code=HTTPStatus.NOT_FOUND
            )
        except BadRequest as error:
            return JSONResponse({"error": str(error)}, status_code=HTTPStatus.BAD_REQUEST)

    return handle


class BadRequest(Exception):
    """A request that cannot be understood."""


async def _body(request: Request) -> dict[str, Any]:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST_BODY_BYTES:
            raise BadRequest("The body is too large.")
    try:
        document = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise BadRequest("The body is not JSON.") from None
    if not isinstance(document, dict):
        raise BadRequest("The body is not a JSON object.")
    return document


def _log_request(request: Request) -> LogRequest:
    query = request.query_params
    tail = query.get("tail", "")
    if tail and not (tail.isascii() and tail.isdigit() and int(tail) <= _MOST_TAIL):
        raise BadRequest(f"tail: expected a number up to {_MOST_TAIL}.")
    return LogRequest(
        node=query.get("node", ""), contains=query.get("contains", ""), tail=int(tail) if tail else None
    )


def _document(sections: Sections) -> Response:
    body = ",".join(f"{json.dumps(key)}:{text}" for key, text in sections.items())
    return Response(f"{{{body}}}", media_type="application/json")


def _file_routes(folder: Path) -> list[Route]:
    """A route for each file that there is at the start: no path of a request is ever a path of the disk."""
    routes = []
    for path in sorted(folder.rglob("*")):
        content_type = _CONTENT_TYPES.get(path.suffix)
        if path.is_file() and content_type is not None:
            name = path.relative_to(folder).as_posix()
            place = "/" if name == "index.html" else f"/{name}"
            routes.append(Route(place, _file_handler(path.read_bytes(), content_type)))
    return routes


def _file_handler(body: bytes, content_type: str) -> _Handler:
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache"}

    async def handle(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        return Response(body, media_type=content_type, headers=headers)

    return handle
