"""Probes: whether the controller works at all (`/healthz`), and whether it knows the cluster (`/readyz`)."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from elasticdl.controller.serving.http_server import Response, Route

# The loop comes round every few seconds; one that has not for so long hangs, and a restart is harmless.
STALLED_SECONDS = 60.0


def health_routes(*, loop_age: Callable[[], float], unsynced: Callable[[], list[str]]) -> dict[str, Route]:
    """`loop_age`: seconds since the loop came round last. `unsynced`: the kinds that have not been listed yet."""

    def live(_: bytes) -> Response:
        age = loop_age()
        if age > STALLED_SECONDS:
            return Response.text(
                f"The loop has not come round for {age:.0f} s.", HTTPStatus.SERVICE_UNAVAILABLE
            )
        return Response.text("ok")

    def ready(_: bytes) -> Response:
        waiting = unsynced()
        if waiting:
            return Response.text(f"Not listed yet: {', '.join(waiting)}.", HTTPStatus.SERVICE_UNAVAILABLE)
        return Response.text("ok")

    return {"/healthz": live, "/readyz": ready}
