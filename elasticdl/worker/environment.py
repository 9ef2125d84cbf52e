"""The environment that frameworks read when they are first imported: so it must be right before that."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

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

# Selects the kernels of an Intel MKL before 2020.1: 5 is AVX2. Later ones ignore it.
_MKL_KERNELS, _AVX2 = "MKL_DEBUG_CPU_TYPE", "5"
# By these a user has selected kernels.
_SELECTING_KERNELS = (_MKL_KERNELS, "MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR")
_PROCESSORS = Path("/proc/cpuinfo")
_AMD = ("AuthenticAMD", "HygonGenuine")


def prepare_environment(environment: MutableMapping[str, str] | None = None) -> None:
    """Quiets TensorFlow's greetings, selects MKL's kernels and hands on the number of threads. What the user has set
    stays.
    """
    variables = os.environ if environment is None else environment
    select_mkl_kernels(variables)
    # Level 2 leaves errors: the rest tells of CPU features and missing GPU libraries at every start.
    variables.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    threads = variables.get(THREADS)
    if not threads:
        return
    if not threads.isdecimal() or int(threads) < 1:
        raise UserError(f"{THREADS}={threads} is not a number of threads.")
    for name in _THREAD_VARIABLES:
        variables.setdefault(name, threads)


def select_mkl_kernels(
    environment: MutableMapping[str, str] | None = None, *, processors: Path = _PROCESSORS
) -> None:
    """Has an old MKL use AVX2 on processors of AMD that have it.

    PaddlePaddle 2.6 brings the MKL of 2019, which takes its kernels for SSE where the processor is not Intel's:
    matrices are multiplied at 0.4 of the speed. It reads the variable when it first computes.
    """
    variables = os.environ if environment is None else environment
    if any(name in variables for name in _SELECTING_KERNELS):
        return
    first = _first_processor(processors)
    if first.get("vendor_id") in _AMD and {"avx2", "fma"} <= {*first.get("flags", "").split()}:
        variables[_MKL_KERNELS] = _AVX2


def _first_processor(processors: Path) -> Mapping[str, str]:
    """The fields of /proc/cpuinfo; empty where there is no such file."""
    found = {}
    try:
        with processors.open(errors="replace") as lines:
            for line in lines:
                name, colon, value = line.partition(":")
                if not colon:
                    break
                found[name.strip()] = value.strip()
    except OSError:
        return {}
    return found


def wait_asleep(environment: MutableMapping[str, str] | None = None) -> None:
    """Has the threads of OpenMP, with which PyTorch computes, sleep while they wait for each other.

    By itself a thread that waits goes on looking, for milliseconds, on a core of its own. Beside a worker there are
    parameter servers, and in it threads that pull and push: what they compute, the others wait for.
    """
    variables = os.environ if environment is None else environment
    if "GOMP_SPINCOUNT" not in variables:
        variables.setdefault("OMP_WAIT_POLICY", "PASSIVE")
