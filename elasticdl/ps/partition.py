"""Which parameter server owns which parameter.

Nobody keeps a map: every worker, and every server that reads a checkpoint, works out the same one from
the names and sizes of the parameters. Largest first, each to the server that has least so far: the
busiest server gets at most a third more than under the best possible distribution of whole parameters
(Graham 1969).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray


def partition(sizes: Mapping[str, int], servers: int) -> dict[str, int]:
    """The server, from 0 to servers - 1, of each name, given the bytes of each."""
    if servers < 1:
        raise ValueError(f"there must be at least one server, not {servers}")
    # Names settle ties, so that nothing depends on the order in which parameters were given.
    order = sorted(sizes, key=lambda name: (-sizes[name], name))
    # The number of parameters settles ties between servers: parameters of no bytes are spread as well.
    loads = [(0, 0, server) for server in range(servers)]
    owners: dict[str, int] = {}
    for name in order:
        load, count, server = loads[0]
        owners[name] = server
        heapq.heapreplace(loads, (load + sizes[name], count + 1, server))
    return owners


def partition_arrays(arrays: Mapping[str, NDArray[np.generic]], servers: int) -> dict[str, int]:
    return partition({name: array.nbytes for name, array in arrays.items()}, servers)
