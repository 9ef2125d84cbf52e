"""A checkpoint of k servers restores onto any n: shares add up to the whole, and are what workers expect where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import NamedArrays, write_array_file
from elasticdl.ps.checkpoint.checkpoint_folders import file_name
from elasticdl.ps.checkpoint.resharding import merge, owners, read_share, share
from elasticdl.ps.core.buckets import BUCKETS, first_map
from elasticdl.ps.core.tensors import Array

names = st.lists(st.text(min_size=1, max_size=12), unique=True, max_size=20)


@st.composite
def snapshots(draw: st.DrawFn) -> NamedArrays:
    trainable = {
        name: np.full(draw(st.integers(0, 50)), float(number)) for number, name in enumerate(draw(names))
    }
    state = {name: np.full(draw(st.integers(0, 9)), number) for number, name in enumerate(draw(names))}
    return NamedArrays(
        attributes={"version": draw(st.integers(0, 9)), "optimizer": {"name": "adam"}},
        groups={
            "trainable": trainable,
            "state": state,
            "slot:momentum": {name: value + 0.5 for name, value in trainable.items()},
            "slot:step": {name: np.asarray(7) for name in trainable},
            "optimizer": {f"own/{name}": value for name, value in trainable.items()},
        },
    )


def flat(snapshot: NamedArrays) -> dict[tuple[str, str], bytes]:
    return {
        (group, name): array.tobytes()
        for group, members in snapshot.groups.items()
        for name, array in members.items()
    }


@given(snapshots(), st.integers(1, 5))
def test_the_shares_are_the_whole(snapshot: NamedArrays, servers: int) -> None:
    shares = [share(snapshot, server, servers) for server in range(servers)]
    assert sum(len(flat(part)) for part in shares) == len(flat(snapshot))
    merged = merge(shares)
    assert flat(merged) == flat(snapshot)
    assert merged.attributes == snapshot.attributes


@given(snapshots(), st.integers(1, 5), st.integers(1, 5))
def test_shares_are_independent_of_earlier_server_count(
    snapshot: NamedArrays, before: int, after: int
) -> None:
    merged = merge([share(snapshot, server, before) for server in range(before)])
    for server in range(after):
        assert flat(share(merged, server, after)) == flat(share(snapshot, server, after))


@given(snapshots(), st.integers(1, 5))
def test_slots_are_where_their_parameter_is(snapshot: NamedArrays, servers: int) -> None:
    for server in range(servers):
        part = share(snapshot, server, servers)
        assert part.groups["slot:momentum"].keys() == part.groups["trainable"].keys()
        assert part.groups["slot:step"].keys() == part.groups["trainable"].keys()


@given(snapshots(), st.integers(1, 4), st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_files_of_some_servers_restore_onto_others(
    tmp_path_factory: pytest.TempPathFactory, snapshot: NamedArrays, before: int, after: int
) -> None:
    folder = tmp_path_factory.mktemp("checkpoint")
    paths = [folder / file_name(server, before) for server in range(before)]
    for server, path in enumerate(paths):
        write_array_file(path, share(snapshot, server, before))
    for server in range(after):
        restored, _ = read_share(paths, first_map(after, replicas=1).primaries_of(server))
        assert flat(restored) == flat(share(snapshot, server, after))
        assert restored.attributes == snapshot.attributes


def test_counts_that_differ_take_the_largest() -> None:
    merged = merge([NamedArrays(attributes={"version": 7, "x": 1}), NamedArrays(attributes={"version": 9})])
    assert merged.attributes == {"version": 9, "x": 1}


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    def write(name: str, optimizer: str, arrays: dict[str, Array]) -> Path:
        snapshot = NamedArrays(attributes={"optimizer": optimizer}, groups={"trainable": arrays})
        write_array_file(tmp_path / name, snapshot)
        return tmp_path / name

    first = write("a.edl", "adam", {"x": np.zeros(3)})
    with pytest.raises(UserError, match=r"optimizer is 'sgd' in .*b\.edl and 'adam' in another"):
        read_share([first, write("b.edl", "sgd", {"y": np.zeros(3)})], range(BUCKETS))
    with pytest.raises(UserError, match=r"x \(trainable\) of .*c\.edl is in another file"):
        read_share([first, write("c.edl", "adam", {"x": np.zeros(3)})], range(BUCKETS))


def test_state_of_the_name_of_a_parameter_is_where_the_parameter_is() -> None:
    sizes = {"trainable": {"a": 10, "b": 20}, "state": {"a": 1, "c": 1}}
    found = owners(sizes, 2)
    assert found["state"]["a"] == found["trainable"]["a"]
