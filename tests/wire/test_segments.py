"""Bodies in shared memory: used where it pays and where it is possible, and never overwritten while in use."""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticdl.wire import frames, shared_memory
from elasticdl.wire.frames import OK, Connection, ConnectionLost, connect
from elasticdl.wire.port_multiplexer import Front
from elasticdl.wire.shared_bodies import Ring
from elasticdl.wire.shared_memory import NotShared, Offered, accept

ECHO, KEEP, GROW, LISTEN = 1, 2, 3, 4
LARGE = 200_000

Serve = Callable[..., str]


class Server:
    """Answers with what it is sent; of some calls it keeps the bodies in use."""

    def __init__(self) -> None:
        self.kept: list[memoryview] = []
        self.heard: list[bytes] = []
        self.shared: list[bool] = []
        self.front = Front("127.0.0.1", 0, token="secret")
        self.front.serve(self._answer, 0)
        self.address = f"127.0.0.1:{self.front.port}"

    def _answer(self, connection: Connection) -> None:
        while True:
            try:
                frame = connection.receive()
            except ConnectionLost:
                return
            self.shared.append(isinstance(frame.body.obj, mmap.mmap))
            if frame.kind == KEEP:
                self.kept.append(frame.body)
                connection.keep_body()
                connection.send(OK, b"kept")
                continue
            if frame.kind == LISTEN:
                self.heard.append(bytes(frame.body))
                connection.send(OK, frame.head)
                continue
            times = LARGE if frame.kind == GROW else 1
            room = connection.reserve(len(frame.body) * times)
            room[:] = bytes(frame.body) * times
            connection.send(OK, frame.head, [room])


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.front.stop()


def call(connection: Connection, body: bytes, **how: Any) -> Any:
    half = len(body) // 2
    connection.send(ECHO, b"head", [body[:half], memoryview(body)[half:]])
    return connection.receive(**how)


def numbers(seed: int, size: int = LARGE) -> bytes:
    return bytes((seed + number) % 251 for number in range(size))


def test_large_bodies_of_calls_do_not_travel(server: Server) -> None:
    connection = connect(server.address, "secret", shares=True)
    for seed in range(3):
        frame = call(connection, numbers(seed))
        assert (frame.kind, frame.head, frame.body) == (OK, b"head", numbers(seed))
        assert isinstance(frame.body.obj, mmap.mmap)
    assert server.shared == [True] * 3
    connection.close()


@pytest.mark.parametrize("missing", [(os, "memfd_create"), (fcntl, "F_ADD_SEALS")])
def test_without_memfd_bodies_go_through_the_socket(
    server: Server, monkeypatch: pytest.MonkeyPatch, missing: tuple[Any, str]
) -> None:
    monkeypatch.delattr(*missing)
    connection = connect(server.address, "secret", shares=True)
    assert call(connection, numbers(1)).body == numbers(1)
    assert server.shared == [False]
    connection.close()
    stream = connect(server.address, "secret")
    stream.share()
    assert call(stream, numbers(2)).body == numbers(2)
    stream.close()


def test_an_offer_is_refused_where_python_has_no_such_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = Offered()
    monkeypatch.delattr(os, "memfd_create")
    with pytest.raises(NotShared):
        accept(offered.words)
    offered.close()


def test_small_ones_do(server: Server) -> None:
    connection = connect(server.address, "secret", shares=True)
    for size in (0, 1, 1000):
        assert call(connection, numbers(1, size)).body == numbers(1, size)
    assert server.shared == [False] * 3
    assert call(connection, numbers(2)).body == numbers(2)
    assert call(connection, numbers(3, 10)).body == numbers(3, 10)
    assert server.shared[3:] == [True, False]
    connection.close()


def test_body_above_segment_size_goes_through_the_socket(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "_SIZE", 1 << 20)
    connection = connect(server.address, "secret", shares=True)
    for size in (100_000, 1 << 20, (1 << 20) + 1, 100_000):
        assert call(connection, numbers(size, size)).body == numbers(size, size)
    assert server.shared == [True, True, False, True]
    connection.close()


def test_reply_is_received_into_given_buffers(server: Server) -> None:
    connection = connect(server.address, "secret", shares=True)
    call(connection, numbers(1))
    first, second = bytearray(LARGE - 7), bytearray(7)
    assert call(connection, numbers(2), into=[memoryview(first), memoryview(second)]).body == b""
    assert first + second == numbers(2)
    kept = call(connection, numbers(3), keep=True).body
    call(connection, numbers(4))
    assert kept == numbers(3)
    connection.close()


def test_an_answer_that_is_larger_than_the_question(server: Server) -> None:
    connection = connect(server.address, "secret", shares=True)
    for expected in (False, True, True):
        connection.send(GROW, b"", [b"x"])
        frame = connection.receive()
        assert frame.body == b"x" * LARGE
        # The first answer travels: only then it is known how large they are.
        assert isinstance(frame.body.obj, mmap.mmap) is expected
    connection.close()


def test_peer_without_access_gets_bodies_through_the_socket(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(words: bytes) -> Any:
        raise NotShared("it is on another machine")

    monkeypatch.setattr(frames, "accept", refuse)
    connection = connect(server.address, "secret", shares=True)
    for seed in range(3):
        assert call(connection, numbers(seed)).body == numbers(seed)
    assert server.shared == [False] * 3
    connection.close()


def test_a_connection_on_which_both_sides_talk_at_any_time_shares_nothing(server: Server) -> None:
    connection = connect(server.address, "secret")
    sending = threading.Thread(target=connection.send, args=(ECHO, b"", [numbers(1, 1_000_000)]))
    sending.start()
    assert connection.receive().body == numbers(1, 1_000_000)
    sending.join()
    assert server.shared == [False]
    connection.close()


def test_segment_in_use_is_not_overwritten(server: Server) -> None:
    connection = connect(server.address, "secret", shares=True)
    for seed in (1, 3):
        connection.send(KEEP, b"", [numbers(seed)])
        assert connection.receive().head == b"kept"
        for other in (10, 11):
            assert call(connection, numbers(other)).body == numbers(other)
    assert server.shared == [True] * 6
    assert server.kept == [numbers(1), numbers(3)]
    connection.close()


@given(st.lists(st.one_of(st.integers(1, 700), st.none()), max_size=60))
def test_bodies_under_way_never_lie_in_each_other(sizes: list[int | None]) -> None:
    """None: the oldest is released."""
    ring = Ring(1024)
    under_way: deque[tuple[int, int, int]] = deque()
    for ticket, size in enumerate(sizes):
        if size is None:
            if under_way:
                ring.release(under_way.popleft()[0])
            continue
        at = ring.place(size, ticket)
        if at is None:
            assert under_way
            continue
        assert 0 <= at <= at + size <= 1024
        assert all(at + size <= start or end <= at for _, start, end in under_way)
        under_way.append((ticket, at, at + size))
    if under_way:
        ring.release(under_way[-1][0])
    assert ring.place(1024, len(sizes)) == 0


def test_unanswered_frames_use_separate_memory(server: Server) -> None:
    connection = connect(server.address, "secret")
    connection.share()
    for seed in range(3):
        connection.send(LISTEN, b"", [numbers(seed)], ticket=seed)
    for seed in range(3):
        connection.receive()
        connection.release(seed)
    assert server.heard == [numbers(seed) for seed in range(3)]
    assert server.shared == [True] * 3
    connection.close()


def test_accepted_segment_is_shared_with_its_owner() -> None:
    offered = Offered()
    segment = accept(offered.words)
    segment.to_server[:3] = b"abc"
    assert bytes(offered.segment.to_server[:3]) == b"abc"
    offered.close()
    with pytest.raises(NotShared):
        accept(offered.words)
    # What both see stays.
    assert bytes(segment.to_server[:3]) == b"abc"


def test_segment_that_differs_from_offer_is_rejected(tmp_path: Any) -> None:
    offered = Offered()
    good = offered.words
    with pytest.raises(NotShared):
        accept(good[:-1])
    with pytest.raises(NotShared, match="another job"):
        accept(good[:-1] + bytes([good[-1] ^ 1]))
    with pytest.raises(NotShared, match="size"):
        accept(good[:8] + (1 << 20).to_bytes(8, "little") + good[16:])
    with (tmp_path / "file").open("wb+") as file:
        file.truncate(mmap.PAGESIZE + 2 * shared_memory._SIZE)
        words = os.getpid().to_bytes(4, "little") + file.fileno().to_bytes(4, "little")
        with pytest.raises(NotShared):
            accept(words + good[8:])
    offered.close()
