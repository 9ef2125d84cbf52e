"""Generations of a parameter server: drops its state when one begins, and restores its share of the checkpoint.

A generation begins without a map, until all servers have joined. Before the map is known a server cannot know its share
of the checkpoint: a guess would leave it incomplete and looking complete. So it drops its state at once, and restores
when the first map comes.
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
    """Applies directives to one store, in their order."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._opened = store.generation

    def apply_directive(self, directive: master_pb2.Directive) -> None:
        """Raises `UserError` if the checkpoint cannot be used."""
        if directive.generation < self._store.generation:
            # From a master that lost its journal. It asks the servers, and continues above their generation.
            return
        if directive.generation > self._store.generation:
            self._store.close(directive.generation)
        if not directive.HasField("ps_map"):
            return
        routes = routes_of(directive)
        self._store.peers.update_routes(routes)
        if self._opened < directive.generation:
            mine = routes.map.copies_on(self._store.number)
            # A server that joins later restores nothing: buckets are migrated to it.
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
