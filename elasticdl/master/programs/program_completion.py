"""The course of a job whose workers run a program of the user's own: when it is over, and who is needed for that.

The chief and the workers train; the job is over when each of them has ended by itself with 0. Parameter servers and
evaluators only serve: they are stopped then. A worker is told the end of its data only when no sample of it can come
back to it, so whoever has ended has left nothing behind for which nobody would be there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from elasticdl.master.lifecycle.roster import Node
from elasticdl.platforms.platform import EndReason

if TYPE_CHECKING:
    from elasticdl.master.job_state import JobState

TRAINERS = ("chief", "worker")


def settle_program(state: JobState) -> None:
    if state.stopping:
        state.outcome = "stopped"
    elif all(state.roster.completed(role) for role in TRAINERS):
        for dataset in state.data.announced:
            if not state.ledger.finished(dataset):
                # The program has had enough (a number of steps, an early end): its own decision.
                state.ledger.stop(dataset)
        state.outcome = "succeeded"


def node_ended(state: JobState, node: Node) -> None:
    """What an end means beyond the node itself."""
    state.ledger.forget_worker(node.name)
    if node.role == "ps" and node.reason is not EndReason.COMPLETED and not state.roster.completed("worker"):
        # What it held comes back only through the chief, which has the checkpoint and initialises it again.
        state.roster.reopen("chief")
