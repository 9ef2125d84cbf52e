"""Folders from outside that the nodes of a job see.

In one line: `claim_name=data,mount_path=/data;host_path=/x,mount_path=/y`. In YAML a list of mappings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import ClassVar

from elasticdl.jobs.grammar import Grammar
from elasticdl.jobs.names import DNS_NAME
from elasticdl.jobs.nearest import did_you_mean
from elasticdl.jobs.pairs import BadValue, format_pairs, parse_pairs, split_outside

_EXAMPLE = "host_path=/data,mount_path=/data"


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A folder of the machine, or a persistent volume claim, mounted into every node."""

    host_path: str = ""
    claim_name: str = ""
    mount_path: str
    sub_path: str = ""


@dataclass(frozen=True, kw_only=True)
class VolumesGrammar(Grammar[tuple[Volume, ...]]):
    metavar: str = "host_path=PATH|claim_name=NAME,mount_path=PATH[,sub_path=PATH];..."
    repeatable: ClassVar[bool] = True

    def parse(self, raw: object) -> tuple[Volume, ...]:
        volumes = tuple(_volumes(raw))
        paths = [volume.mount_path for volume in volumes]
        for path in paths:
            if paths.count(path) > 1:
                raise BadValue(f"two volumes are mounted at {path}")
        return volumes

    def plain(self, value: tuple[Volume, ...]) -> list[dict[str, str]]:
        return [{name: text for name, text in asdict(volume).items() if text} for volume in value]

    def text(self, value: tuple[Volume, ...]) -> str:
        return ";".join(format_pairs(volume) for volume in self.plain(value))


def _volumes(raw: object) -> list[Volume]:
    if isinstance(raw, Volume):
        return [_checked(asdict(raw))]
    if isinstance(raw, str):
        return [_checked(parse_pairs(piece, example=_EXAMPLE)) for piece in split_outside(raw, ";")]
    if isinstance(raw, Mapping):
        return [_checked(parse_pairs(raw, example=_EXAMPLE))]
    if isinstance(raw, Sequence):
        return [volume for part in raw for volume in _volumes(part)]
    raise BadValue(f"{raw!r} is not a volume such as {_EXAMPLE}")


def _checked(pairs: dict[str, str]) -> Volume:
    names = [item.name for item in fields(Volume)]
    for key in pairs:
        if key not in names:
            raise BadValue(
                f"{key!r} is not a part of a volume ({', '.join(names)}).{did_you_mean(key, names)}"
            )
    if not pairs.get("mount_path"):
        raise BadValue("a volume needs mount_path, the place where nodes see it")
    if bool(pairs.get("host_path")) == bool(pairs.get("claim_name")):
        raise BadValue("a volume needs either host_path or claim_name, and not both")
    volume = Volume(**pairs)
    for name, path in (("mount_path", volume.mount_path), ("host_path", volume.host_path)):
        if path and not path.startswith("/"):
            raise BadValue(f"{name} must be an absolute path, not {path!r}")
    if volume.sub_path.startswith("/") or ".." in volume.sub_path.split("/"):
        raise BadValue(f"sub_path must be a path inside the volume, not {volume.sub_path!r}")
    if volume.claim_name:
        DNS_NAME.check(volume.claim_name)
    return volume
