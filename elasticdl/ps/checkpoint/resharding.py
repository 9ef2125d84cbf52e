"""Reshards a checkpoint of k servers for n: merges the files, and splits them by bucket.

Buckets decide, as everywhere (`buckets.py`): the numbers of a parameter, its slots and whatever else is kept under its
name are in the bucket of the parameter. Other names (state, or groups that belong to no parameter) are in buckets by
their own sizes. The rows of tables are none of this: they are left out here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from elasticdl.errors import UserError
from elasticdl.ps.checkpoint.array_file import ArrayFile, NamedArrays
from elasticdl.ps.core.buckets import dense_buckets, first_map

TRAINABLE = "trainable"
STATE = "state"
# The prefix of a table's rows, which are divided by their buckets and not by name: see `table_files.py`.
TABLE_PREFIX = "table:"
# The prefix of pending gradients of rows in synchronous training; their arrays are named BUCKET/ARRAY.
WAITING_PREFIX = "waiting:"

_Item = TypeVar("_Item")


def buckets_of_names(sizes: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """The bucket of each name of each group, given the bytes of each."""
    trainable = dense_buckets(sizes.get(TRAINABLE, {}))
    found = {}
    for group, members in sizes.items():
        if group.startswith(WAITING_PREFIX):
            # Gradients for rows: they say themselves where they belong.
            found[group] = {name: int(name.partition("/")[0]) for name in members}
            continue
        others = dense_buckets({name: size for name, size in members.items() if name not in trainable})
        found[group] = {name: trainable[name] if name in trainable else others[name] for name in members}
    return found


def owners(sizes: Mapping[str, Mapping[str, int]], servers: int) -> dict[str, dict[str, int]]:
    """The server of each name of each group, if so many share the buckets evenly."""
    primary = first_map(servers, replicas=1).primary
    return {
        group: {name: primary[bucket] for name, bucket in members.items()}
        for group, members in buckets_of_names(sizes).items()
    }


def merge(snapshots: Sequence[NamedArrays]) -> NamedArrays:
    """All arrays of several snapshots in one. Of numbers among the attributes, the largest of each."""
    names = [str(number) for number in range(len(snapshots))]
    return NamedArrays(
        attributes=_merge_attributes([snapshot.attributes for snapshot in snapshots], names),
        groups=_merge_groups([snapshot.groups for snapshot in snapshots], names),
    )


def share(snapshot: NamedArrays, server: int, servers: int) -> NamedArrays:
    """Returns the part of a snapshot that one of so many servers holds."""
    sizes = {
        group: {name: array.nbytes for name, array in members.items()}
        for group, members in snapshot.groups.items()
    }
    owned = owners(sizes, servers)
    return NamedArrays(
        attributes=snapshot.attributes,
        groups={
            group: {name: array for name, array in members.items() if owned[group][name] == server}
            for group, members in snapshot.groups.items()
        },
    )


def read_share(paths: Sequence[Path], held: Collection[int]) -> tuple[NamedArrays, dict[str, int]]:
    """Reads the content of some buckets from all these files, and the bucket of each name. Holds no more than that in
    memory.
    """
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(ArrayFile(path)) for path in paths]
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
        buckets = buckets_of_names(sizes)
        snapshot = NamedArrays(
            attributes=attributes,
            groups={
                group: {
                    name: holder[group, name].read(group, name)
                    for name, bucket in members.items()
                    if bucket in held
                }
                for group, members in buckets.items()
            },
        )
    return snapshot, {**buckets.get(STATE, {}), **buckets.get(TRAINABLE, {})}


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
