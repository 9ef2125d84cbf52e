"""Chooses the evaluations of a long training to keep where space is limited.

The first evaluation, the newest ones, and of every metric the lowest and the highest, as it is unknown here which of
them is the better one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

EVALUATIONS_KEPT = 200


def kept_indices(metrics: Sequence[Mapping[str, float]]) -> list[int]:
    """Returns which evaluations to keep: the first, the newest, and those with the extremes of each metric."""
    if len(metrics) <= EVALUATIONS_KEPT:
        return [*range(len(metrics))]
    kept = {0, *range(len(metrics) - EVALUATIONS_KEPT, len(metrics))}
    lowest: dict[str, tuple[float, int]] = {}
    highest: dict[str, tuple[float, int]] = {}
    for index, values in enumerate(metrics):
        for name, value in values.items():
            # A comparison with NaN, as of a training that diverged, is false: it is neither.
            if name not in lowest or value < lowest[name][0] or lowest[name][0] != lowest[name][0]:
                lowest[name] = value, index
            if name not in highest or value > highest[name][0] or highest[name][0] != highest[name][0]:
                highest[name] = value, index
    kept.update(index for _, index in (*lowest.values(), *highest.values()))
    return sorted(kept)


def kept_results(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns those evaluations of a snapshot that `compacted` keeps in a status."""
    return [results[index] for index in kept_indices([result["metrics"] for result in results])]
