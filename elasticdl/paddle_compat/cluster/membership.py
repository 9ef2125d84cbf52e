"""The nodes of a job: views of them, and the decisions that follow.

`Membership` is the seam between pods and processes of one machine. The decisions are pure: members in, answer out.
"""

from __future__ import annotations

import enum
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from elasticdl.errors import UserError


class Phase(enum.Enum):
    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, kw_only=True)
class Member:
    """A node as its platform reports it; `uid` changes when it is replaced."""

    uid: str
    name: str
    address: str
    phase: Phase


class MembershipUnavailable(Exception):
    """The platform does not answer at the moment; nothing is known about the members."""


class Membership(Protocol):
    @property
    def own_uid(self) -> str: ...

    def members(self) -> Sequence[Member]:
        """The current nodes of this job. Raises `MembershipUnavailable`."""


@dataclass(frozen=True, kw_only=True)
class Quorum:
    """The members of one attempt, in the order of their numbers: addresses sorted as text."""

    members: tuple[Member, ...]

    @property
    def addresses(self) -> list[str]:
        return [member.address for member in self.members]

    @property
    def attempt(self) -> str:
        """The same on all nodes of an attempt, and another after a replacement."""
        return hashlib.sha256("\n".join(sorted(each.uid for each in self.members)).encode()).hexdigest()[:12]

    def number_of(self, uid: str) -> int:
        return next(number for number, member in enumerate(self.members) if member.uid == uid)


def find_quorum(members: Iterable[Member], *, wanted: int) -> Quorum | None:
    """Returns the quorum, or None while some nodes are not running. Raises `UserError` if there are more nodes than the
    job expects.
    """
    active = [each for each in members if each.phase in (Phase.PENDING, Phase.RUNNING)]
    if len(active) > wanted:
        raise UserError(
            f"CONF_PADDLE_GRADIENT_NUM is {wanted}, but the Job has {len(active)} pods: "
            f"{', '.join(sorted(each.name for each in active))}.",
            hint="Set CONF_PADDLE_GRADIENT_NUM, parallelism and completions to the same number.",
        )
    running = [each for each in active if each.phase is Phase.RUNNING and each.address]
    if len(running) < wanted:
        return None
    addresses = [each.address for each in running]
    if len(set(addresses)) < len(addresses):
        raise UserError(
            f"Pods of the Job share an address: {', '.join(sorted(addresses))}.",
            hint="With hostNetwork, each pod needs a machine of its own.",
        )
    return Quorum(members=tuple(sorted(running, key=lambda each: each.address)))


def find_loss(quorum: Quorum, members: Iterable[Member]) -> str:
    """Names the members of an attempt that are gone or have failed; empty if there are none."""
    phases = {each.uid: each.phase for each in members}
    lost = [
        f"{each.name} ({each.address}) {'has failed' if each.uid in phases else 'is gone'}"
        for each in quorum.members
        if phases.get(each.uid, Phase.FAILED) is Phase.FAILED
    ]
    return ", ".join(lost)


@dataclass(frozen=True, kw_only=True)
class FileMembership:
    """The nodes of one machine: `elasticdl paddle run` writes the file, its nodes read it."""

    file: Path
    own_uid: str

    def members(self) -> list[Member]:
        return [
            Member(uid=each["uid"], name=each["name"], address=each["address"], phase=Phase(each["phase"]))
            for each in json.loads(self.file.read_text())
        ]


def write_members(file: Path, members: Iterable[Member]) -> None:
    part = file.with_suffix(".part")
    part.write_text(
        json.dumps(
            [
                {"uid": each.uid, "name": each.name, "address": each.address, "phase": each.phase.value}
                for each in members
            ]
        )
    )
    os.replace(part, file)
