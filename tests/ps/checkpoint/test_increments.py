"""When a checkpoint holds everything, and when only what has changed."""

from __future__ import annotations

from elasticdl.ps.checkpoint.increments import Increments, PublishedCheckpoint


def published(number: int, generation: int = 1) -> PublishedCheckpoint:
    return PublishedCheckpoint(
        folder=f"version-{number}", manifest_crc32=number, copy=f"barrier-{number}", generation=generation
    )


def test_the_first_holds_everything() -> None:
    assert Increments(8).base(1) is None


def test_so_many_in_a_row() -> None:
    increments = Increments(2)
    whole = []
    for number in range(10):
        base = increments.base(1)
        if base is None:
            whole.append(number)
        else:
            assert base == published(number - 1)
        increments.add(published(number), size=100 if base is None else 1, complete=base is None)
    assert whole == [0, 3, 6, 9]


def test_none_if_so_wished() -> None:
    increments = Increments(0)
    increments.add(published(1), size=100, complete=True)
    assert increments.base(1) is None


def test_not_when_they_add_up_to_half() -> None:
    increments = Increments(100)
    increments.add(published(1), size=100, complete=True)
    for number in range(2, 5):
        assert increments.base(1) is not None
        increments.add(published(number), size=20, complete=False)
    assert increments.base(1) is None
    increments.add(published(5), size=100, complete=True)
    assert increments.base(1) == published(5)


def test_full_checkpoint_in_place_of_increment_becomes_base() -> None:
    increments = Increments(1)
    increments.add(published(1), size=100, complete=True)
    increments.add(published(2), size=100, complete=True)
    assert increments.base(1) == published(2)


def test_nothing_of_another_generation_is_built_upon() -> None:
    increments = Increments(8)
    increments.add(published(1, generation=1), size=100, complete=True)
    assert increments.base(2) is None
