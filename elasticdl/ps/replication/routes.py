"""The addresses of servers and the map in the newest directive of the master: for servers and for workers."""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.ps.core.buckets import BucketMap
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.wire import master_pb2


def routes_of(directive: master_pb2.Directive) -> Routes:
    """Returns the routes of a directive with a map: none has one before all servers have joined."""
    return Routes(
        map=BucketMap.from_wire(directive.ps_map),
        addresses={number: address for number, address in enumerate(directive.ps_addresses) if address},
        incarnations={number: one for number, one in enumerate(directive.ps_incarnations) if one},
    )


def latest_routes(
    first: master_pb2.Directive, newest: Callable[[], master_pb2.Directive]
) -> Callable[[], Routes]:
    """Returns a function that gives the current routes, computed only when there is another directive.

    `first` has a map; the newest may be of a time when there is none, and then says nothing.
    """
    directive, known = first, routes_of(first)

    def routes() -> Routes:
        nonlocal directive, known
        now = newest()
        # Another generation is for others.
        if now is not directive and now.HasField("ps_map") and now.generation == directive.generation:
            directive, known = now, routes_of(now)
        return known

    return routes
