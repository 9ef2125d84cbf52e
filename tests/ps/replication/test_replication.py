"""Servers that are lost, added and removed at random, workers that end, models that are restored, with a network that
delays everything: no acknowledged update is lost, none is applied twice, backups are equal to their primaries, and a
worker that has ended is credited with what every bucket has had.

The histories are those of `histories.py`. `test_planted_faults.py` shows that faults show in them.
"""

from __future__ import annotations

from concurrent import futures

import numpy as np
import pytest

from elasticdl.ps.core.server_errors import NotReady
from elasticdl.ps.protocol.call_codec import read_push
from elasticdl.ps.storage.bucket_store import ServerSettings
from tests.ps.histories import HISTORIES, Worker, World
from tests.random_histories import seeds

pytestmark = pytest.mark.soak


# Among the same ones, `test_planted_faults.py` finds each of its faults.
@pytest.mark.parametrize("seed", seeds(HISTORIES))
def test_nothing_is_lost_and_nothing_counts_twice(seed: int) -> None:
    World(seed).run(500)


def test_a_fence_counts_only_what_the_backup_has() -> None:
    world = World(1)
    world.begin()
    world.freshness = 1.0
    world.server_settings = ServerSettings()
    first, second = world.living[0], world.living[1]
    worker = Worker(name="worker-0", routes=world.routes(), batches=1, sequence=1)
    mask = np.array(world.map.primary) == 0
    request, body = world.push_of(worker, mask)
    first.store.workers.begin_push(read_push(request, body), message=request, body=(body,))
    with futures.ThreadPoolExecutor(1) as pool:
        fencing = pool.submit(first.store.master.fence, "worker-0", generation=1)
        with pytest.raises(futures.TimeoutError):
            fencing.result(timeout=0.3)
        while not fencing.done():
            world.deliver(first)
            world.acknowledge(first)
        fenced = fencing.result()
    assert fenced.last.sequence == 1
    assert (fenced.buckets == mask).all()
    for history in second.store.state.bucket_store.histories.select(mask):
        assert history.last["worker-0"].sequence == 1
    # The new primary rejects that worker too.
    assert "worker-0" in second.store.state.fenced


def test_stopping_server_does_not_acknowledge_pending_push() -> None:
    world = World(1)
    world.begin()
    worker = Worker(name="worker-0", routes=world.routes(), batches=1, sequence=1)
    request, body = world.push_of(worker, np.array(world.map.primary) == 0)
    store = world.living[0].store
    with futures.ThreadPoolExecutor(1) as pool:
        pushing = pool.submit(store.workers.push, read_push(request, body), message=request, body=(body,))
        store.stop()
        with pytest.raises(NotReady, match="is stopping"):
            pushing.result(timeout=60)
