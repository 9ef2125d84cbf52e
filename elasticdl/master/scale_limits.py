"""Scales a running job: how many workers and parameter servers it may have, and which nodes leave first.

Users (`elasticdl jobs scale`) and the controller ask for counts per role and may name victims. Either all counts are
applied, or none: a count out of range is an error that says which range. A victim that cannot be drained is never an
error, since nodes end by themselves at any moment: it is left out, and reported with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.status import DesiredResult
from elasticdl.master.master import Master
from elasticdl.master.servers.bucket_placement import fewest_servers
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.memory_limit import room_for_rows

_WORDS = {"worker": "workers", "ps": "parameter servers"}
_FLAGS = {"worker": "num_workers", "ps": "num_ps"}


class CannotScale(ValueError):
    """The reason, for the user or the controller."""


def scale(master: Master, nodes: Mapping[str, int], *, victims: Iterable[str] = ()) -> DesiredResult:
    """Applies the counts and drains the victims. The result's message is empty if nothing was to be done.

    Raises `CannotScale` before anything is changed.
    """
    for role, count in nodes.items():
        _check(master, role, count)
    roster = master.state.roster
    named = tuple(dict.fromkeys(victims))
    ignored = {name: why for name in named if (why := _why_not_drained(master, name))}
    drained: dict[str, list[str]] = {}
    for name in named:
        if name not in ignored and not roster.nodes[name].draining:
            drained.setdefault(roster.nodes[name].role, []).append(name)
    done = []
    for role in dict.fromkeys((*nodes, *drained)):
        before = roster.targets[role]
        target, going = nodes.get(role, before), drained.get(role, [])
        if target == before and not going:
            continue
        master.do("scale", role=role, target=target, **({"victims": going} if going else {}))
        done.append(_words(role, before, target, going))
    return DesiredResult(message=" and ".join(done), ignored_victims=ignored)


def _words(role: str, before: int, target: int, victims: list[str]) -> str:
    change = f"from {before} to {target} {_WORDS[role]}"
    return f"{change} (draining {', '.join(victims)})" if victims else change


def _why_not_drained(master: Master, name: str) -> str:
    node = master.state.roster.nodes.get(name)
    if node is None:
        return f"there is no node of that name.{did_you_mean(name, master.state.roster.nodes)}"
    if not node.alive:
        return f"it has ended ({node.reason.value or node.phase.value})"
    if node.role == "ps":
        return "parameter servers are not drained by name: the ones in the last places leave first"
    if node.role != "worker":
        return f"{node.role} nodes cannot be drained"
    if master.spec.addressed:
        return "the nodes of this program are known by their addresses: the newest leave first"
    return ""


def _check(master: Master, role: str, count: int) -> None:
    if role == "worker":
        _check_range(master, role, count)
        _check_workers(master, count)
    elif role == "ps":
        _check_servers(master, count)
    else:
        raise CannotScale(
            f"{role!r} is not a role that can be scaled: {', '.join(_WORDS)}.{did_you_mean(role, _WORDS)}"
        )


def _check_range(master: Master, role: str, count: int) -> None:
    """The range that the job was submitted with."""
    low, high = master.spec.nodes.range_of(role)
    if count < low:
        raise CannotScale(f"--{_FLAGS[role]}={count} is less than {_flag('min', role)}={low} of this job.")
    if high is not None and count > high:
        raise CannotScale(f"--{_FLAGS[role]}={count} is more than {_flag('max', role)}={high} of this job.")


def _flag(bound: str, role: str) -> str:
    return f"--{bound}_{_FLAGS[role].removeprefix('num_')}"


def _check_workers(master: Master, count: int) -> None:
    if count < 1:
        raise CannotScale("--num_workers must be at least 1.")
    if master.plan.worker_owns_state and not master.plan.allreduce and count > 1:
        raise CannotScale(
            "This job trains in one worker (--distribution_strategy=Local). "
            "Start it with --num_ps=1 or more to let it grow."
        )
    places = master.state.addresses.get("worker")
    if master.spec.model.need_tf_config and places and count > len(places):
        raise CannotScale(
            f"The parameter servers of this job know of {len(places)} places for workers, and TensorFlow cannot "
            "tell them of more while they run."
        )


def _check_servers(master: Master, count: int) -> None:
    if not master.plan.servers:
        raise CannotScale(
            "The parameter servers of a program of your own are fixed: its framework knows their addresses."
            if master.plan.runs_command
            else "This job has no parameter servers; only one that was started with some can have more."
        )
    _check_range(master, "ps", count)
    if not 1 <= count <= BUCKETS:
        raise CannotScale(f"--num_ps must be from 1 to {BUCKETS}.")
    if master.state.training_over:
        raise CannotScale("The training is over.")
    _check_memory(master, count)


def _check_memory(master: Master, count: int) -> None:
    """Fewer servers must have memory for the rows that there are."""
    before = master.state.roster.targets["ps"]
    memory = master.spec.nodes.ps_resource_limit.memory
    if memory is None or count >= before:
        return
    room = room_for_rows(int(memory.amount))
    rows = master.figures.row_bytes
    replicas = master.plan.replicas
    fewest = fewest_servers(rows, copies=min(replicas, before), replicas=replicas, room=room)
    if count < fewest:
        raise CannotScale(
            f"The rows of the tables do not fit on {count}: their copies take {rows:,} bytes on {before} parameter "
            f"servers, and each has room for {room:,} (--ps_resource_limit). It takes {fewest} or more."
        )
