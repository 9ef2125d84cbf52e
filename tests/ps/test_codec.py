"""Messages written by hand are protobuf's messages, both ways; their arrays can be used where they lie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elasticdl.ps.codec import decode, encode
from elasticdl.ps.tensors import DTYPES, Array, from_wire_all, to_wire_all
from elasticdl.wire import ps_pb2

GRADIENTS = ps_pb2.PushRequest.GRADIENTS_FIELD_NUMBER
STATE = ps_pb2.PushRequest.STATE_FIELD_NUMBER

groups = st.dictionaries(
    st.text(max_size=200),
    st.sampled_from(sorted(DTYPES)).flatmap(
        lambda name: hnp.arrays(
            np.dtype(name), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=9)
        )
    ),
    max_size=5,
)
heads = st.builds(
    ps_pb2.PushRequest,
    worker=st.text(max_size=300),
    sequence=st.integers(-(1 << 63), (1 << 63) - 1),
    learning_rate=st.floats(allow_nan=False),
    position=st.integers(0, 1 << 50),
)


def same(left: dict[str, Array], right: dict[str, Array]) -> bool:
    return left.keys() == right.keys() and all(
        left[name].dtype == right[name].dtype
        and left[name].shape == right[name].shape
        and left[name].tobytes() == right[name].tobytes()
        for name in left
    )


@given(heads, groups, groups)
def test_protobuf_reads_what_we_write(
    head: ps_pb2.PushRequest, gradients: dict[str, Array], state: dict[str, Array]
) -> None:
    message = ps_pb2.PushRequest.FromString(encode(head, {GRADIENTS: gradients, STATE: state}))
    assert same(from_wire_all(message.gradients), gradients)
    assert same(from_wire_all(message.state), state)
    message.ClearField("gradients")
    message.ClearField("state")
    message.ClearField("padding")
    assert message == head


@given(heads, groups, groups)
def test_we_read_what_protobuf_writes(
    head: ps_pb2.PushRequest, gradients: dict[str, Array], state: dict[str, Array]
) -> None:
    message = ps_pb2.PushRequest(gradients=to_wire_all(gradients), state=to_wire_all(state))
    message.MergeFrom(head)
    rest, tensors = decode(ps_pb2.PushRequest, message.SerializeToString(), (GRADIENTS, STATE))
    assert rest == head
    assert same(tensors[GRADIENTS], gradients)
    assert same(tensors[STATE], state)


@given(heads, groups, groups)
def test_arrays_are_views_that_can_be_computed_with_in_place(
    head: ps_pb2.PushRequest, gradients: dict[str, Array], state: dict[str, Array]
) -> None:
    message = encode(head, {GRADIENTS: gradients, STATE: state})
    rest, tensors = decode(ps_pb2.PushRequest, message, (GRADIENTS, STATE))
    assert rest == head
    assert same(tensors[GRADIENTS], gradients)
    for array in [*tensors[GRADIENTS].values(), *tensors[STATE].values()]:
        assert array.flags.aligned
        if array.size:
            assert not array.flags.owndata
            assert array.ctypes.data % 16 == 0


@given(st.data())
def test_cut_off_messages_are_refused_or_whole(data: st.DataObject) -> None:
    """A message that ends between two fields is a message of fewer fields; any other end is an error."""
    message = encode(
        ps_pb2.PushRequest(worker="worker-1", sequence=3), {GRADIENTS: {"a": np.ones(3), "b": np.ones(2)}}
    )
    end = data.draw(st.integers(0, len(message) - 1))
    try:
        _, tensors = decode(ps_pb2.PushRequest, message[:end], (GRADIENTS,))
    except ValueError:
        return
    assert set(tensors[GRADIENTS]) < {"a", "b"}


@given(st.binary(max_size=200))
def test_rubbish_is_refused_as_such(message: bytes) -> None:
    try:
        decode(ps_pb2.PushRequest, message, (GRADIENTS, STATE))
    except ValueError:
        return


def test_a_name_may_come_only_once() -> None:
    once = encode(ps_pb2.PushRequest(), {GRADIENTS: {"a": np.ones(3)}})
    with pytest.raises(ValueError, match="a comes twice"):
        decode(ps_pb2.PushRequest, once + once, (GRADIENTS,))


def test_a_tensor_that_is_not_a_message_is_refused() -> None:
    with pytest.raises(ValueError, match="not encoded"):
        decode(ps_pb2.PushRequest, bytes([GRADIENTS << 3, 1]), (GRADIENTS,))
