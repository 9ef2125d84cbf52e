"""The assignment of a step's micro-batches to members. Pure arithmetic with the same result on every member.

The number of micro-batches of a step is fixed. Usually they go around: the first to the first member,
the second to the second, and so on. When a round begins in the middle of a step, what members have computed stays
theirs, and only the rest is assigned, to the members with the fewest.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence


def usual_share(count: int, size: int, rank: int) -> list[int]:
    """Returns the micro-batches of one member out of `size`, among 0 .. count-1."""
    return list(range(rank, count, size))


def valid_claims(claims: Sequence[Collection[int]]) -> list[set[int]]:
    """Returns the micro-batches that each member has computed and keeps, by rank.

    A member that was cut off for a round may come back with micro-batches that others have computed meanwhile. It
    has only the sum of all it did, so it cannot give up a part: it gives up everything.
    """
    taken: set[int] = set()
    valid = []
    for claim in claims:
        kept = set(claim) if taken.isdisjoint(claim) else set()
        taken |= kept
        valid.append(kept)
    return valid


def shares(claims: Sequence[Collection[int]], count: int) -> list[list[int]]:
    """Returns the micro-batches that each member must have computed for this step, by rank, given those that each has
    already (`valid_claims`).
    """
    given = [sorted(claim) for claim in claims]
    taken = {offset for claim in claims for offset in claim}
    for offset in range(count):
        if offset not in taken:
            min(given, key=len).append(offset)
    return given
