"""Folders from outside that the nodes of a job see.

In one line: `claim_name=data,mount_path=/data;host_path=/x,mount_path=/y`. In YAML a list of mappings. ConfigMaps and
Secrets of the cluster are folders too, with a file for each of their keys; `sub_path` takes one of them alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import ClassVar

from elasticdl.jobs.flags.grammar import Boolean, Grammar
from elasticdl.jobs.flags.names import DNS_NAME
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.flags.pairs import BadValue, format_pairs, parse_pairs, split_outside
from elasticdl.jobs.sections import reserved

SOURCES = ("host_path", "claim_name", "config_map", "secret")
_EXAMPLE = "host_path=/data,mount_path=/data"


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A folder of the machine, a persistent volume claim, a ConfigMap or a Secret, mounted into every node."""

    host_path: str = ""
    claim_name: str = ""
    config_map: str = ""
    secret: str = ""
    mount_path: str
    sub_path: str = ""
    read_only: bool = False

    @property
    def source(self) -> tuple[str, str]:
        """Returns the source of the volume: the name of one of the first four fields, and its value."""
        return next((name, value) for name in SOURCES if (value := str(getattr(self, name))))


class VolumesGrammar(Grammar[tuple[Volume, ...]]):
    metavar = "host_path=PATH|claim_name=NAME|config_map=NAME|secret=NAME,mount_path=PATH[,...];..."
    repeatable: ClassVar[bool] = True

    def parse(self, raw: object) -> tuple[Volume, ...]:
        volumes = tuple(_volumes(raw))
        places = [reserved.same_place(volume.mount_path) for volume in volumes]
        for place in places:
            if places.count(place) > 1:
                raise BadValue(f"two volumes are mounted at {place}")
        return volumes

    def plain(self, value: tuple[Volume, ...]) -> list[dict[str, str]]:
        return [
            {
                name: Boolean().text(part) if isinstance(part, bool) else part
                for name, part in asdict(volume).items()
                if part
            }
            for volume in value
        ]

    def text(self, value: tuple[Volume, ...]) -> str:
        return ";".join(format_pairs(volume) for volume in self.plain(value))


def _volumes(raw: object) -> list[Volume]:
    if isinstance(raw, Volume):
        return [_checked({**asdict(raw), "read_only": Boolean().text(raw.read_only)})]
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
    if sum(bool(pairs.get(name)) for name in SOURCES) != 1:
        raise BadValue(f"a volume needs one of {', '.join(SOURCES)}, and not two of them")
    texts = dict(pairs)
    try:
        read_only = Boolean().parse(texts.pop("read_only", "") or "false")
    except BadValue as problem:
        raise BadValue(f"read_only: {problem}") from None
    volume = Volume(**texts, read_only=read_only)
    for name, path in (("mount_path", volume.mount_path), ("host_path", volume.host_path)):
        if path and not path.startswith("/"):
            raise BadValue(f"{name} must be an absolute path, not {path!r}")
    if ":" in volume.mount_path:
        raise BadValue(f"mount_path must be a path without a colon, not {volume.mount_path!r}")
    if because := reserved.why_not_there(volume.mount_path):
        raise BadValue(f"mount_path cannot be {volume.mount_path}: {because}")
    if volume.sub_path.startswith("/") or ".." in volume.sub_path.split("/"):
        raise BadValue(f"sub_path must be a path inside the volume, not {volume.sub_path!r}")
    for name in (volume.claim_name, volume.config_map, volume.secret):
        if name:
            DNS_NAME.check(name)
    return volume
