"""A server that is asked twice in one pull, since buckets have moved to it meanwhile, has gone on in between: what was
pulled is as old as the first of its answers.
"""

from __future__ import annotations

import numpy as np

from elasticdl.ps.bodies import mask_of, pack
from elasticdl.ps.buckets import BUCKETS
from elasticdl.ps.calls import PullCall
from elasticdl.wire import ps_pb2
from elasticdl.wire.frames import OK, Frame

HALF = mask_of(range(BUCKETS // 2))


def answer(**said: object) -> Frame:
    reply = ps_pb2.PullReply(initialized=True, **said)  # type: ignore[arg-type]
    return Frame(OK, reply.SerializeToString(), memoryview(b""))


def test_values_are_as_old_as_the_oldest_of_them() -> None:
    call = PullCall(1, {})
    call.accept(0, HALF, answer(version=5))
    assert call.accept(1, ~HALF, answer(version=6, moved=pack(~HALF))).sum() == BUCKETS // 2
    call.accept(0, ~HALF, answer(version=7))
    assert call.values().versions == {0: 5}


def test_what_is_known_is_replaced_by_what_is_pulled_after_all() -> None:
    call = PullCall(1, {0: 5, 1: 5})
    call.accept(0, HALF, answer(version=5, unchanged=True))
    call.accept(1, ~HALF, answer(version=6))
    np.testing.assert_array_equal(call.unchanged, HALF)
    call.accept(0, HALF, answer(version=8))
    assert call.values().versions == {0: 8, 1: 6}


def test_all_of_it_may_be_known() -> None:
    call = PullCall(1, {0: 5})
    call.accept(0, np.ones(BUCKETS, np.bool_), answer(version=5, unchanged=True))
    assert call.values().versions == {0: 5}
