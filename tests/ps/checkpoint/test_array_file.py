"""A snapshot comes back from its file exactly, and its size and checksum are those of the file."""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import ArrayFile, NamedArrays, read_array_file, write_array_file
from elasticdl.ps.core.tensors import DTYPES

arrays = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda name: hnp.arrays(np.dtype(name), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6))
)
groups = st.dictionaries(
    st.text(max_size=8), st.dictionaries(st.text(max_size=30), arrays, max_size=4), max_size=4
)
attributes = st.dictionaries(
    st.text(max_size=8),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    ),
    max_size=5,
)
snapshots = st.builds(NamedArrays, attributes=attributes, groups=groups)


def assert_same(left: NamedArrays, right: NamedArrays) -> None:
    assert left.attributes == right.attributes
    assert left.groups.keys() == right.groups.keys()
    for group, members in left.groups.items():
        assert list(members) == list(right.groups[group])
        for name, array in members.items():
            other = right.groups[group][name]
            assert array.dtype == other.dtype
            assert array.shape == other.shape
            assert array.tobytes() == other.tobytes()


@given(snapshots)
@settings(deadline=None)
def test_written_arrays_read_back_with_size_and_checksum(snapshot: NamedArrays) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.edl"
        size, crc32 = write_array_file(path, snapshot)
        assert_same(read_array_file(path), snapshot)
        assert path.stat().st_size == size
        assert zlib.crc32(path.read_bytes()) == crc32
        assert [entry.name for entry in Path(folder).iterdir()] == ["x.edl"]


def test_arrays_larger_than_a_piece(tmp_path: Path) -> None:
    large = np.random.default_rng(1).normal(size=(700, 900))
    write_array_file(tmp_path / "x.edl", NamedArrays(groups={"g": {"large": large, "part": large[::2, ::3]}}))
    back = read_array_file(tmp_path / "x.edl").groups["g"]
    np.testing.assert_array_equal(back["large"], large)
    np.testing.assert_array_equal(back["part"], large[::2, ::3])


def test_read_array_is_writable(tmp_path: Path) -> None:
    write_array_file(tmp_path / "x.edl", NamedArrays(groups={"g": {"a": np.zeros(3)}}))
    array = read_array_file(tmp_path / "x.edl").groups["g"]["a"]
    array += 1
    assert array.flags.owndata


def test_one_array_can_be_read_without_the_others(tmp_path: Path) -> None:
    path = tmp_path / "x.edl"
    write_array_file(path, NamedArrays(groups={"g": {"a": np.arange(100), "b": np.arange(5.0)}}))
    content = bytearray(path.read_bytes())
    content[20] ^= 1  # in a
    path.write_bytes(content)
    with ArrayFile(path) as file:
        np.testing.assert_array_equal(file.read("g", "b"), np.arange(5.0))
        with pytest.raises(UserError, match=r"checksum of a \(g\) is wrong"):
            file.read("g", "a")
