"""Data that may not be written: the index goes to the cache folder, and if that fails too, reading still works."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elasticdl.data.dataset import open_reader
from elasticdl.data.files.record_index import beside_data, in_cache
from elasticdl.data.formats.recordio import RecordIOWriter


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that others may enter, which pytest's own are not."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    data = root / "data"
    data.mkdir()
    with RecordIOWriter(data / "x.recordio") as writer:
        for number in range(10):
            writer.write(b"%d" % number)
    (data / "x.recordio").chmod(0o444)
    data.chmod(0o555)
    yield root
    data.chmod(0o755)
    shutil.rmtree(root)


def test_the_cache_folder_is_used(
    place: Path, monkeypatch: pytest.MonkeyPatch, as_other_user: Callable[[Callable[[], None]], None]
) -> None:
    cache = place / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    monkeypatch.setenv("ELASTICDL_CACHE", str(cache))
    path = place / "data" / "x.recordio"

    def work() -> None:
        reader = open_reader(str(path))
        assert list(reader.read(3, 5)) == [b"3", b"4"]
        assert in_cache(path).exists()
        kept = in_cache(path).stat().st_mtime_ns
        assert len(open_reader(str(path))) == 10
        assert in_cache(path).stat().st_mtime_ns == kept

    as_other_user(work)
    assert not beside_data(path).exists()
    assert in_cache(path).exists()


def test_without_any_place_it_is_built_every_time(
    place: Path, monkeypatch: pytest.MonkeyPatch, as_other_user: Callable[[Callable[[], None]], None]
) -> None:
    monkeypatch.setenv("ELASTICDL_CACHE", str(place / "data" / "cache"))
    path = place / "data" / "x.recordio"

    def work() -> None:
        for _ in range(2):
            assert list(open_reader(str(path)).read(3, 5)) == [b"3", b"4"]

    as_other_user(work)
    assert [found.name for found in path.parent.iterdir()] == ["x.recordio"]


def test_the_cache_folder_by_default_is_in_the_home_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ELASTICDL_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert in_cache(Path("/data/x")).parent == tmp_path / ".cache" / "elasticdl" / "index"
