"""How many workers a running job can have, asked by whoever wants another number of them."""

from __future__ import annotations

from elasticdl.master.master import Master

TOO_FEW = "--num_workers must be at least 1."
PS_FIXED = "The number of parameter servers of a running job is fixed."


class CannotScale(ValueError):
    """The reason, for whoever asked."""


def scale_workers(master: Master, wanted: int) -> str:
    """Says what has been done."""
    if wanted < 1:
        raise CannotScale(TOO_FEW)
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
    before = master.state.roster.targets["worker"]
    master.do("scale", role="worker", target=wanted)
    return f"from {before} to {wanted} workers"
