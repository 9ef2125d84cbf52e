"""A bucket's primary changes and the one before lives: it hands over, once, however many maps still list that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from elasticdl.ps.core.array_bodies import unpack
from elasticdl.ps.core.buckets import BUCKETS, BucketMap, first_map
from elasticdl.ps.protocol import call_codec
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.ps.server.store import Store
from elasticdl.ps.storage.bucket_store import InitialModel, ServerSettings
from elasticdl.wire import ps_pb2

SGD = ps_pb2.OptimizerConfig(name="sgd", flavor="keras")
BEFORE = BucketMap(version=1, primary=(0,) * BUCKETS, backup=(1,) * BUCKETS)
HANDED = BucketMap(
    version=2,
    primary=(1,) * BUCKETS,
    backup=(0,) * BUCKETS,
    handover=dict.fromkeys(range(BUCKETS), 0),
)


def server(number: int, incarnation: str = "") -> Store:
    store = Store(ServerSettings(), number=number, incarnation=incarnation)
    store.close(1)
    store.peers.update_routes(Routes(map=BEFORE))
    store.open()
    store.state.bucket_store.initialize(
        np.ones(BUCKETS, np.bool_), InitialModel(trainable={}, state={}, optimizer=SGD)
    )
    return store


def deliver(sender: Store, receiver: Store) -> list[str]:
    """All that one has to tell the other; returns what it was. Raises what the receiver does."""
    delivered = []
    for outbox in sender.state.peers.outboxes.values():
        while (entry := outbox.after(outbox.acknowledged)) is not None:
            receiver.peers.receive(
                sender.number,
                sender.incarnation,
                1,
                entry.entry,
                unpack(entry.entry.buckets),
                call_codec.decode_entry(entry.entry, memoryview(b"".join(entry.body))),
            )
            delivered.append(str(entry.entry.WhichOneof("what")))
            sender.peers.acknowledge(outbox, entry.entry.position)
    return delivered


def test_finished_handover_is_not_repeated_by_later_map() -> None:
    first, second = server(0), server(1)
    for store in (first, second):
        store.peers.update_routes(Routes(map=HANDED))
    assert deliver(first, second) == ["handover"]
    # Something else has changed before it was reported to the master.
    for store in (second, first):
        store.peers.update_routes(Routes(map=replace(HANDED, version=3)))
    assert deliver(first, second) == []
    assert second.master.status().taken == list(range(BUCKETS))


def test_delayed_handover_is_delivered_once() -> None:
    first, second = server(0), server(1)
    first.peers.update_routes(Routes(map=HANDED))
    for store in (first, second):
        store.peers.update_routes(Routes(map=replace(HANDED, version=3)))
    assert deliver(first, second) == ["handover"]
    assert second.master.status().taken == list(range(BUCKETS))


def test_handover_waits_for_acknowledgements_of_all_replicas() -> None:
    """The backup of the next primary has entries from this one, which would be lost to it otherwise."""
    first = server(0)
    everything = dict.fromkeys(range(BUCKETS), 2)
    first.peers.update_routes(Routes(map=replace(BEFORE, version=2, migrating=everything)))
    push = ps_pb2.PushRequest(worker="w", sequence=1, learning_rate=1.0, generation=1)
    first.workers.begin_push(call_codec.read_push(push, memoryview(b"")), message=push)
    outboxes = first.state.peers.outboxes
    newest = [outbox.after(outbox.last - 1) for outbox in outboxes.values()]
    assert all(each is not None and each.entry.HasField("push") for each in newest)
    # The third server becomes the primary, the backup stays.
    first.peers.update_routes(
        Routes(map=replace(HANDED, version=3, primary=(2,) * BUCKETS, backup=(1,) * BUCKETS))
    )
    last = outboxes[2].last
    first.peers.acknowledge(outboxes[2], last)
    assert outboxes[2].last == last
    first.peers.acknowledge(outboxes[1], outboxes[1].last)
    handover = outboxes[2].after(last)
    assert handover is not None
    assert handover.entry.HasField("handover")


def test_a_bucket_that_comes_back_is_handed_over_again() -> None:
    first, second = server(0), server(1)
    for version in range(2, 10, 2):
        there = replace(HANDED, version=version)
        back = replace(BEFORE, version=version + 1, handover=dict.fromkeys(range(BUCKETS), 1))
        for sender, receiver, current in ((first, second, there), (second, first, back)):
            for store in (first, second):
                store.peers.update_routes(Routes(map=current))
            assert deliver(sender, receiver) == ["handover"]
            assert receiver.master.status().taken == list(range(BUCKETS))


def test_new_process_with_the_same_number_gets_the_handover_again() -> None:
    first = server(0, "zero")
    first.peers.update_routes(Routes(map=HANDED, incarnations={0: "zero", 1: "one"}))
    assert deliver(first, server(1, "one")) == ["handover"]
    other = server(1, "other")
    routes = Routes(map=replace(HANDED, version=3), incarnations={0: "zero", 1: "other"})
    for store in (first, other):
        store.peers.update_routes(routes)
    assert deliver(first, other) == ["handover"]


def test_maps_of_equal_shares_hand_nothing_over() -> None:
    first = server(0)
    first.peers.update_routes(Routes(map=replace(first_map(2), version=2)))
    assert first.state.peers.roles.to_hand_over() == []
