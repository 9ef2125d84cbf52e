"""Only the known messages are understood, and those arrive as they were sent."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.platforms.local.messages import (
    BadMessage,
    Changed,
    Done,
    ListNodes,
    Nodes,
    Recall,
    Refused,
    Start,
    Stop,
    Watch,
    decode,
    encode,
)
from elasticdl.platforms.platform import EndReason, NodePhase, NodeRequest, NodeStatus

NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,30}", fullmatch=True)
NUMBERS = st.integers(0, 2**53)
REQUESTS = st.builds(
    NodeRequest,
    name=NAMES,
    role=st.text(),
    command=st.lists(st.text(), min_size=1).map(tuple),
    environment=st.dictionaries(st.text(), st.text()),
)
STATUSES = st.builds(
    NodeStatus,
    name=NAMES,
    role=st.text(),
    phase=st.sampled_from(NodePhase),
    reason=st.sampled_from(EndReason),
    exit_code=st.none() | st.integers(0, 255),
    message=st.text(),
)
SEVERAL = st.lists(STATUSES, max_size=3).map(tuple)
MESSAGES = st.one_of(
    st.builds(Start, id=NUMBERS, node=REQUESTS, again=st.booleans()),
    st.builds(Stop, id=NUMBERS, name=NAMES, grace_seconds=st.floats(0, 1e6)),
    st.builds(ListNodes, id=NUMBERS),
    st.builds(Watch, id=NUMBERS),
    st.builds(Recall, id=NUMBERS, nodes=SEVERAL),
    st.builds(Done, id=NUMBERS),
    st.builds(Refused, id=NUMBERS, message=st.text()),
    st.builds(Nodes, id=NUMBERS, nodes=SEVERAL),
    st.builds(Changed, id=NUMBERS, node=STATUSES, pid=st.none() | st.integers(1, 2**22)),
)


@given(MESSAGES)
def test_encoded_message_decodes_to_the_same(message: object) -> None:
    line = encode(message)  # type: ignore[arg-type]
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message


@given(MESSAGES, st.data())
def test_a_message_with_a_key_more_or_less_is_refused(message: object, data: st.DataObject) -> None:
    value = json.loads(encode(message))  # type: ignore[arg-type]
    missing = dict(value)
    del missing[data.draw(st.sampled_from(sorted(value)))]
    with pytest.raises(BadMessage):
        decode(json.dumps(missing).encode())
    with pytest.raises(BadMessage, match="unknown keys"):
        decode(json.dumps({**value, "extra": 1}).encode())


@given(st.binary())
def test_noise_is_refused(line: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(line)


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "stop", "id": 1, "name": "a", "grace_seconds": -1}',
        '{"kind": "stop", "id": 1, "name": "a", "grace_seconds": NaN}',
        '{"kind": "stop", "id": 1, "name": "a", "grace_seconds": true}',
        '{"kind": "stop", "id": 1, "name": "../a", "grace_seconds": 1}',
        '{"kind": "stop", "id": "1", "name": "a", "grace_seconds": 1}',
        '{"kind": "eval", "id": 1}',
        '{"kind": ["list"], "id": 1}',
        '{"kind": "list", "id": 1.5}',
        '{"kind": "list", "id": true}',
        '{"kind": "start", "id": 1, "again": false, "node": []}',
        '{"kind": "start", "id": 1, "again": false, "node":'
        ' {"name": "a", "role": "b", "command": [], "environment": {}}}',
        '{"kind": "start", "id": 1, "again": false, "node":'
        ' {"name": "a", "role": "b", "command": "sleep", "environment": {}}}',
        '{"kind": "start", "id": 1, "again": false, "node":'
        ' {"name": "a", "role": "b", "command": ["sleep"], "environment": {"A": 1}}}',
        '{"kind": "recall", "id": 1, "nodes": [{"name": "a"}]}',
        "[]",
        "[" * 100_000,
    ],
)
def test_a_wrong_value_is_refused(line: str) -> None:
    with pytest.raises(BadMessage):
        decode(line.encode())
