"""The environment that frameworks read when they are first imported: so it must be right before that."""

from __future__ import annotations

import os
from collections.abc import MutableMapping

from elasticdl.errors import UserError

# How many threads a worker computes with; the framework decides if it is not set. Worth setting where several
# workers share a machine.
THREADS = "ELASTICDL_THREADS"

_THREAD_VARIABLES = (
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
)


def prepare_environment(environment: MutableMapping[str, str] | None = None) -> None:
    """Quiets TensorFlow's greetings and hands on the number of threads. What the user has set stays."""
    variables = os.environ if environment is None else environment
    # Level 2 leaves errors: the rest tells of CPU features and missing GPU libraries at every start.
    variables.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    threads = variables.get(THREADS)
    if not threads:
        return
    if not threads.isdecimal() or int(threads) < 1:
        raise UserError(f"{THREADS}={threads} is not a number of threads.")
    for name in _THREAD_VARIABLES:
        variables.setdefault(name, threads)


def wait_asleep(environment: MutableMapping[str, str] | None = None) -> None:
    """Has the threads of OpenMP, with which PyTorch computes, sleep while they wait for each other.

    By itself a thread that waits goes on looking, for milliseconds, on a core of its own. Beside a worker there are
    parameter servers, and in it threads that pull and push: what they compute, the others wait for.
    """
    variables = os.environ if environment is None else environment
    if "GOMP_SPINCOUNT" not in variables:
        variables.setdefault("OMP_WAIT_POLICY", "PASSIVE")
