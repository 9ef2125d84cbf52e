"""How many workers and parameter servers a running job can have, asked by whoever wants another number of them."""

from __future__ import annotations

from elasticdl.master.commands.nodes import ScaleRole
from elasticdl.master.master import Master
from elasticdl.master.servers.bucket_placement import fewest_servers
from elasticdl.ps.core.buckets import BUCKETS
from elasticdl.ps.core.memory_limit import room_for_rows

_WORDS = {"worker": "workers", "ps": "parameter servers"}


class CannotScale(ValueError):
    """The reason, for whoever asked."""


def scale(master: Master, *, workers: int | None, servers: int | None) -> str:
    """Says what has been done. Either everything that was wanted is done, or nothing."""
    if workers is None and servers is None:
        raise CannotScale("Say how many: --num_workers, --num_ps, or both.")
    if workers is not None:
        _check_workers(master, workers)
    if servers is not None:
        _check_servers(master, servers)
    done = []
    for role, wanted in (("worker", workers), ("ps", servers)):
        if wanted is not None:
            before = master.state.roster.targets[role]
            master.do(ScaleRole(role=role, target=wanted))
            done.append(f"from {before} to {wanted} {_WORDS[role]}")
    return " and ".join(done)


def _check_workers(master: Master, wanted: int) -> None:
    if wanted < 1:
        raise CannotScale("--num_workers must be at least 1.")
    if master.plan.worker_owns_state and not master.plan.allreduce and wanted > 1:
        raise CannotScale(
            "This job trains in one worker (--distribution_strategy=Local). "
            "Start it with --num_ps=1 or more to let it grow."
        )
    places = master.state.addresses.get("worker")
    if master.spec.model.need_tf_config and places and wanted > len(places):
        raise CannotScale(
            f"The parameter servers of this job know of {len(places)} places for workers, and TensorFlow cannot "
            "tell them of more while they run."
        )


def _check_servers(master: Master, wanted: int) -> None:
    if not master.plan.servers:
        raise CannotScale(
            "The parameter servers of a program of your own are fixed: its framework knows their addresses."
            if master.plan.runs_command
            else "This job has no parameter servers; only one that was started with some can have more."
        )
    if not 1 <= wanted <= BUCKETS:
        raise CannotScale(f"--num_ps must be from 1 to {BUCKETS}.")
    if master.state.training_over:
        raise CannotScale("The training is over.")
    _check_memory(master, wanted)


def _check_memory(master: Master, wanted: int) -> None:
    """That fewer servers have room for what there is."""
    before = master.state.roster.targets["ps"]
    memory = master.spec.nodes.ps_resource_limit.memory
    if memory is None or wanted >= before:
        return
    room = room_for_rows(int(memory.amount))
    rows = master.figures.row_bytes
    replicas = master.plan.replicas
    fewest = fewest_servers(rows, copies=min(replicas, before), replicas=replicas, room=room)
    if wanted < fewest:
        raise CannotScale(
            f"The rows of the tables do not fit on {wanted}: their copies take {rows:,} bytes on {before} parameter "
            f"servers, and each has room for {room:,} (--ps_resource_limit). It takes {fewest} or more."
        )
