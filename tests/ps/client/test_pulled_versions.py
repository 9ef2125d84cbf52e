"""What a worker knows of the age of what it has pulled: bucket by bucket, wherever a bucket was then and is now."""

from __future__ import annotations

from typing import Any

import numpy as np

from elasticdl.ps.client.calls import PullCall, PushCall
from elasticdl.ps.core.array_bodies import mask_of, pack, unpack
from elasticdl.ps.core.bucket_versions import NOTHING_PULLED, Versions
from elasticdl.ps.core.buckets import BUCKETS, first_map
from elasticdl.ps.replication.replica_log import Routes
from elasticdl.wire import ps_pb2
from elasticdl.wire.frames import OK, Frame

ALL = np.ones(BUCKETS, np.bool_)
HALF = mask_of(range(BUCKETS // 2))
QUARTER = mask_of(range(BUCKETS // 4))
ROUTES = Routes(map=first_map(2, replicas=1))


def answer(**describe_error: object) -> Frame:
    reply = ps_pb2.PullReply(initialized=True, **describe_error)  # type: ignore[arg-type]
    return Frame(OK, reply.SerializeToString(), memoryview(b""))


def versions(first: int, second: int) -> Versions:
    """Of the one half of the buckets, and of the other."""
    return np.where(HALF, first, second)


def known(call: PullCall, mask: Any) -> int:
    return ps_pb2.PullRequest.FromString(call.prepare(ROUTES, 0, mask).head).known_version


def push(pulled: Versions, mask: Any) -> ps_pb2.PushRequest:
    call = PushCall(ps_pb2.PushRequest(), {}, {}, {}, "float32", pulled)
    return ps_pb2.PushRequest.FromString(call.prepare(ROUTES, 0, mask).head)


def test_second_answer_of_a_server_is_versioned_by_itself() -> None:
    """Since buckets have moved to it meanwhile."""
    call = PullCall(1, NOTHING_PULLED)
    call.accept(0, HALF, answer(version=5))
    assert call.accept(1, ~HALF, answer(version=6, moved=pack(~HALF))).sum() == BUCKETS // 2
    call.accept(0, ~HALF, answer(version=7))
    np.testing.assert_array_equal(call.values().versions, versions(5, 7))


def test_some_of_a_server_are_newer() -> None:
    call = PullCall(1, NOTHING_PULLED)
    call.accept(0, ALL, answer(version=5, newer=[ps_pb2.BucketVersion(buckets=pack(~HALF), version=8)]))
    np.testing.assert_array_equal(call.values().versions, versions(5, 8))


def test_known_versions_are_replaced_by_a_later_pull() -> None:
    call = PullCall(1, versions(5, 5))
    call.accept(0, HALF, answer(version=5, unchanged=True))
    call.accept(1, ~HALF, answer(version=6))
    np.testing.assert_array_equal(call.unchanged, HALF)
    call.forget()
    assert known(call, HALF) == -1
    call.accept(0, HALF, answer(version=8))
    np.testing.assert_array_equal(call.values().versions, versions(8, 6))


def test_all_of_it_may_be_known() -> None:
    call = PullCall(1, versions(5, 5))
    assert known(call, ALL) == 5
    call.accept(0, ALL, answer(version=5, unchanged=True))
    np.testing.assert_array_equal(call.values().versions, versions(5, 5))


def test_moved_bucket_keeps_version_of_its_source() -> None:
    """A server that has got buckets since must not take them for as new as its own."""
    call = PullCall(1, versions(7, 6))
    assert known(call, HALF) == 7
    assert known(call, ~HALF) == 6
    assert known(call, ALL) == -1


def test_gradients_are_as_old_as_what_was_pulled_wherever_it_is_now() -> None:
    pulled = versions(7, 6)
    request = push(pulled, QUARTER)
    assert (request.version, list(request.newer)) == (7, [])
    request = push(pulled, QUARTER | ~HALF)
    assert request.version == 6
    (newer,) = request.newer
    assert newer.version == 7
    np.testing.assert_array_equal(unpack(newer.buckets), QUARTER)
    assert push(NOTHING_PULLED, ALL).version == -1
