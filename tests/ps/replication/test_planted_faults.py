"""Servers with a fault in them: the histories of `histories.py` show it.

A check that never fails says nothing. Here is what it is there for, fault by fault, put into the real code. Those that
so few schedules meet that histories rarely find them have tests of their own: a handover that does not wait for all of
them is in `test_handover.py`, a bucket that is dropped since its map is late in `test_migration_aborted.py`, and
what is pushed between two parts of a bucket and not replicated in `test_migration_parts.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from elasticdl.ps.core.buckets import first_map
from elasticdl.ps.protocol.results import PendingFence
from elasticdl.ps.replication.peers import Peers
from elasticdl.ps.replication.replica_log import Roles
from elasticdl.ps.server.generations import Generations
from elasticdl.ps.server.master_calls import MasterCalls
from elasticdl.ps.server.worker_calls import WorkerCalls
from elasticdl.ps.storage.bucket_store import BucketStore, Push
from elasticdl.wire import master_pb2
from tests.ps.histories import HISTORIES, World

Plant = Callable[[pytest.MonkeyPatch], None]


def now_and_then(
    function: Callable[..., Any], otherwise: Callable[..., Any], every: int
) -> Callable[..., Any]:
    """The function, but for every so many-th call."""
    calls = 0

    def call(*arguments: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        return (otherwise if calls % every == 0 else function)(*arguments, **more)

    return call


def a_backup_drops_an_update(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BucketStore, "replay", now_and_then(BucketStore.replay, lambda *_: None, 20))


def a_backup_drops_the_rows_of_an_update(patch: pytest.MonkeyPatch) -> None:
    """And knows nothing of it: what is written down of the batch is right."""
    replay = BucketStore.replay

    def without_rows(self: BucketStore, push: Any, mask: Any) -> None:
        replay(self, type(push)(**{**vars(push), "rows": {}}), mask)

    patch.setattr(BucketStore, "replay", now_and_then(replay, without_rows, 20))


def a_backup_doubles_an_update(patch: pytest.MonkeyPatch) -> None:
    applied = BucketStore._apply

    def twice(self: BucketStore, push: Any, history: Any) -> None:
        applied(self, push, history)
        applied(self, push, history)

    def replay(self: BucketStore, push: Any, mask: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(BucketStore, "_apply", twice)
            plain(self, push, mask)

    plain = BucketStore.replay
    patch.setattr(BucketStore, "replay", now_and_then(plain, replay, 20))


def a_repeated_push_is_applied_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkerCalls, "_select_new", lambda self, push, histories: list(histories))


def acknowledged_before_the_backup_has_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Peers, "is_acknowledged", lambda self, waiting: True)


def the_rows_of_a_bucket_are_lost_at_a_move(patch: pytest.MonkeyPatch) -> None:
    export = BucketStore.export

    def without_rows(self: BucketStore, bucket: int, **how: Any) -> Any:
        attributes, groups, buckets = export(self, bucket, **how)
        return (
            attributes,
            {name: {} if name.startswith("rows:") else group for name, group in groups.items()},
            buckets,
        )

    patch.setattr(BucketStore, "export", now_and_then(export, without_rows, 50))


def a_bucket_is_reset_at_a_move(patch: pytest.MonkeyPatch) -> None:
    export = BucketStore.export

    def zeros(self: BucketStore, bucket: int, **how: Any) -> Any:
        attributes, groups, buckets = export(self, bucket, **how)
        dense = {name: np.zeros_like(array) for name, array in groups.get("trainable", {}).items()}
        return attributes, {**groups, "trainable": dense}, buckets

    patch.setattr(BucketStore, "export", zeros)


def a_bucket_forgets_at_a_move_what_it_has_had(patch: pytest.MonkeyPatch) -> None:
    export = BucketStore.export

    def unaware(self: BucketStore, bucket: int, **how: Any) -> Any:
        attributes, groups, buckets = export(self, bucket, **how)
        return {**attributes, "last": {}}, groups, buckets

    patch.setattr(BucketStore, "export", unaware)


def a_part_of_a_bucket_is_lost_at_a_move(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BucketStore, "put_part", now_and_then(BucketStore.put_part, lambda *_, **more: None, 20))


def who_was_given_up_is_listened_to(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Roles, "accepts_from", lambda *_: True)


def a_server_restores_before_it_has_a_map(patch: pytest.MonkeyPatch) -> None:
    """By the map that it would be if there were no copies."""
    apply_directive = Generations.apply_directive

    def guess(self: Generations, directive: master_pb2.Directive) -> None:
        if not directive.HasField("ps_map"):
            directive.ps_map.CopyFrom(first_map(2, replicas=1, version=0).to_wire())
        apply_directive(self, directive)

    patch.setattr(Generations, "apply_directive", guess)


def a_fence_speaks_for_what_is_not_handed_over_yet(patch: pytest.MonkeyPatch) -> None:
    begin = MasterCalls.begin_fence

    def too_early(self: MasterCalls, worker: str, *, generation: int) -> PendingFence:
        fencing = begin(self, worker, generation=generation)
        if self._state.roles.map is not None:
            fencing.waiting.mask = self._state.roles.map.owners == self._state.number
        return fencing

    patch.setattr(MasterCalls, "begin_fence", too_early)


def a_fence_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    begin = MasterCalls.begin_fence

    def forget(self: MasterCalls, worker: str, *, generation: int) -> PendingFence:
        fencing = begin(self, worker, generation=generation)
        self._state._fenced.discard(worker)
        return fencing

    patch.setattr(MasterCalls, "begin_fence", forget)


def a_gradient_is_as_old_as_the_oldest_bucket_says(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Push, "age", lambda self, history: history.version - self.version)


def a_backup_finds_a_gradient_younger(patch: pytest.MonkeyPatch) -> None:
    replay = BucketStore.replay

    def younger(self: BucketStore, push: Any, mask: Any) -> None:
        replay(self, type(push)(**{**vars(push), "version": push.version + 1}), mask)

    patch.setattr(BucketStore, "replay", younger)


# The seed whose history showed the fault when the fault was written. After a change of the histories, another one may.
FAULTS: dict[Plant, int] = {
    a_backup_drops_an_update: 0,
    a_backup_drops_the_rows_of_an_update: 1,
    a_backup_doubles_an_update: 0,
    a_repeated_push_is_applied_again: 1,
    acknowledged_before_the_backup_has_it: 0,
    the_rows_of_a_bucket_are_lost_at_a_move: 2,
    a_bucket_is_reset_at_a_move: 0,
    a_bucket_forgets_at_a_move_what_it_has_had: 0,
    a_part_of_a_bucket_is_lost_at_a_move: 1,
    who_was_given_up_is_listened_to: 11,
    a_server_restores_before_it_has_a_map: 1,
    a_fence_speaks_for_what_is_not_handed_over_yet: 12,
    a_fence_is_forgotten: 9,
    a_gradient_is_as_old_as_the_oldest_bucket_says: 5,
    a_backup_finds_a_gradient_younger: 6,
}


@pytest.mark.parametrize(("plant", "seed"), FAULTS.items(), ids=[plant.__name__ for plant in FAULTS])
def test_a_fault_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant, seed: int) -> None:
    plant(monkeypatch)

    def run() -> None:
        for each in (seed, *range(HISTORIES)):
            World(each).run(500)

    with pytest.raises(AssertionError):
        run()
