"""Who is where, as the newest directive of the master says it: for the servers themselves, and for workers."""

from __future__ import annotations

from collections.abc import Callable

from elasticdl.ps.buckets import BucketMap, first_map
from elasticdl.ps.replication import Routes
from elasticdl.wire import master_pb2


def routes_of(directive: master_pb2.Directive, servers: int) -> Routes:
    """The map of a directive; or, where it has none, that of so many servers whose buckets do not move."""
    known = (
        BucketMap.from_wire(directive.ps_map)
        if directive.HasField("ps_map")
        else first_map(servers, replicas=1, version=0)
    )
    return Routes(
        map=known,
        addresses={number: address for number, address in enumerate(directive.ps_addresses) if address},
        incarnations={number: one for number, one in enumerate(directive.ps_incarnations) if one},
    )


def newest_routes(newest: Callable[[], master_pb2.Directive], servers: int) -> Callable[[], Routes]:
    """Routes that are asked for all the time, made anew only when there is another directive."""
    directive = newest()
    known = routes_of(directive, servers)

    def routes() -> Routes:
        nonlocal directive, known
        now = newest()
        # One without addresses is of a time when not all servers are there; another generation is for others.
        if now is not directive and now.ps_addresses and now.generation == directive.generation:
            directive, known = now, routes_of(now, servers)
        return known

    return routes
