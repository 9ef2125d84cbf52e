"""While a worker's framework is imported, Python does not search for garbage; afterwards it does again, but not in what
the import has made.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from elasticdl.worker.garbage_collection import keep_all, nothing_collected

# More than any threshold that a test may have found.
MANY = 20_000


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


@pytest.fixture
def searches() -> Iterator[list[str]]:
    found: list[str] = []

    def note(phase: str, _: object) -> None:
        found.append(phase)

    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)


def _make_objects() -> list[list[int]]:
    return [[number] for number in range(MANY)]


def test_no_search_in_the_block_and_as_before_behind_it(searches: list[str]) -> None:
    with nothing_collected():
        searches.clear()
        kept = _make_objects()
        assert searches == []
    kept += _make_objects()
    assert searches
    assert gc.get_threshold() == (700, 10, 10)


def test_as_before_behind_an_error() -> None:
    with pytest.raises(ValueError, match="bad"), nothing_collected():
        raise ValueError("bad")
    assert gc.get_threshold() == (700, 10, 10)


def test_thresholds_set_by_program_are_kept() -> None:
    with nothing_collected():
        gc.set_threshold(5000, 20, 20)
    assert gc.get_threshold() == (5000, 20, 20)


class Itself:
    def __init__(self) -> None:
        self.me = self


def test_objects_of_import_are_exempt_from_collection() -> None:
    gc.collect()
    before = weakref.ref(Itself())
    keep_all()
    try:
        after = weakref.ref(Itself())
        gc.collect()
        assert before() is not None
        assert after() is None
    finally:
        gc.unfreeze()
    gc.collect()
    assert before() is None
