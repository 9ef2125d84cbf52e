"""What a parameter server does about the generation and the map of a directive: when it drops what it has, and what it
begins again with.

A generation begins without a map, as long as not all servers have joined. Until there is one nobody knows what is to be
where: a server that read its share of the checkpoint by a guess would lack the rest of it, and look as if it had all.
So it drops what it has at once, and restores when it is told what to hold.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from elasticdl.ps.checkpoint.array_file import NamedArrays
from elasticdl.ps.checkpoint.checkpoint_folders import chain, find_checkpoint
from elasticdl.ps.checkpoint.resharding import read_share
from elasticdl.ps.checkpoint.table_files import SavedTables
from elasticdl.ps.replication.routes import routes_of
from elasticdl.ps.server.store import Store
from elasticdl.wire import master_pb2

log = logging.getLogger("elasticdl.ps")


class Generations:
    """Those of one server, in the order of the directives that it gets."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._opened = store.generation

    def apply_directive(self, directive: master_pb2.Directive) -> None:
        """Raises `UserError` if the checkpoint cannot be used."""
        if directive.generation < self._store.generation:
            # Of a master that has forgotten the last of what it knew. It asks, and goes on above that.
            return
        if directive.generation > self._store.generation:
            self._store.close(directive.generation)
        if not directive.HasField("ps_map"):
            return
        routes = routes_of(directive)
        self._store.peers.update_routes(routes)
        if self._opened < directive.generation:
            mine = routes.map.copies_on(self._store.number)
            # One that comes later has nothing to restore: others fill it.
            if directive.restore_from and mine:
                self._restore(directive.restore_from, mine)
            else:
                self._store.open()
            self._opened = directive.generation
            log.info("Server %d is ready for generation %d.", self._store.number, directive.generation)

    def _restore(self, place: str, mine: Collection[int]) -> None:
        checkpoint = find_checkpoint(place)
        snapshot, buckets = read_share(checkpoint.data_files(), mine)
        tables = SavedTables([each.data_files() for each in chain(checkpoint)])
        # A checkpoint of a worker's own model counts steps in its manifest only.
        attributes = {"version": checkpoint.manifest.step, **snapshot.attributes}
        self._store.open(
            NamedArrays(attributes=attributes, groups=snapshot.groups), buckets=buckets, tables=tables
        )
        log.info("Restored from %s.", checkpoint.path)
