"""What a checkpoint of k servers gives to each of n: files put together, and cut anew.

Names decide, as everywhere (`partition.py`): the numbers of a parameter, its slots and whatever else is kept
under its name go to the server that owns the parameter. Other names (state, or groups that belong to no
parameter) are spread by their own sizes. Tables are none of this: they are left out here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from elasticdl.jobs.errors import UserError
from elasticdl.ps.partition import partition
from elasticdl.ps.snapshot import Snapshot, SnapshotFile

TRAINABLE = "trainable"
STATE = "state"
# Of the rows of a table, which are cut by their buckets and not by name: see `table_files.py`.
TABLE_PREFIX = "table:"

_Item = TypeVar("_Item")


def owners(sizes: Mapping[str, Mapping[str, int]], servers: int) -> dict[str, dict[str, int]]:
    """The server of each name of each group, given the bytes of each."""
    trainable = partition(sizes.get(TRAINABLE, {}), servers)
    found = {}
    for group, members in sizes.items():
        others = partition({name: size for name, size in members.items() if name not in trainable}, servers)
        found[group] = {name: trainable[name] if name in trainable else others[name] for name in members}
    return found


def merge(snapshots: Sequence[Snapshot]) -> Snapshot:
    """All arrays of several snapshots in one. Of numbers among the attributes, the largest of each."""
    names = [str(number) for number in range(len(snapshots))]
    return Snapshot(
        attributes=_merge_attributes([snapshot.attributes for snapshot in snapshots], names),
        groups=_merge_groups([snapshot.groups for snapshot in snapshots], names),
    )


def share(snapshot: Snapshot, server: int, servers: int) -> Snapshot:
    """What one of so many servers holds of a snapshot."""
    sizes = {
        group: {name: array.nbytes for name, array in members.items()}
        for group, members in snapshot.groups.items()
    }
    owned = owners(sizes, servers)
    return Snapshot(
        attributes=snapshot.attributes,
        groups={
            group: {name: array for name, array in members.items() if owned[group][name] == server}
            for group, members in snapshot.groups.items()
        },
    )


def read_share(paths: Sequence[Path], server: int, servers: int) -> Snapshot:
    """`share` of the merged files, without ever holding more than the share."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(SnapshotFile(path)) for path in paths]
        names = [str(path) for path in paths]
        attributes = _merge_attributes([file.attributes for file in files], names)
        entries = _merge_groups([file.entries for file in files], names)
        holder = {
            (group, name): file
            for file in files
            for group, members in file.entries.items()
            for name in members
        }
        sizes = {
            group: {name: entry.bytes for name, entry in members.items()}
            for group, members in entries.items()
        }
        return Snapshot(
            attributes=attributes,
            groups={
                group: {
                    name: holder[group, name].read(group, name)
                    for name, owner in members.items()
                    if owner == server
                }
                for group, members in owners(sizes, servers).items()
            },
        )


def _merge_groups(
    parts: Sequence[Mapping[str, Mapping[str, _Item]]], sources: Sequence[str]
) -> dict[str, dict[str, _Item]]:
    merged: dict[str, dict[str, _Item]] = {}
    for part, source in zip(parts, sources, strict=True):
        for group, members in part.items():
            for name in members:
                if name in merged.get(group, {}):
                    raise UserError(
                        f"{name} ({group}) of {source} is in another file of this checkpoint as well.",
                        hint="The files were not written together. Start from another checkpoint.",
                    )
            if not group.startswith(TABLE_PREFIX):
                merged.setdefault(group, {}).update(members)
    return merged


def _merge_attributes(parts: Sequence[Mapping[str, Any]], sources: Sequence[str]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part, source in zip(parts, sources, strict=True):
        for key, value in part.items():
            known = merged.setdefault(key, value)
            if known == value:
                continue
            if not isinstance(known, (int, float)) or not isinstance(value, (int, float)):
                raise UserError(
                    f"{key} is {value!r} in {source} and {known!r} in another file of this checkpoint.",
                    hint="The files were not written together. Start from another checkpoint.",
                )
            merged[key] = max(known, value)
    return merged
