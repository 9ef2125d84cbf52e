"""The distribution of integers in little memory: counts in fixed classes.

From 0 to 7 each number has a class of its own; above, each power of two has four classes, so a quantile is right to an
eighth. Classes are the same everywhere and forever: distributions are merged by adding up, and what happened between
two moments is the difference of two of them, both without any loss.
"""

from __future__ import annotations

from collections.abc import Mapping

# Four classes for each power of two; 2⁴⁰ microseconds are twelve days.
_CLASSES = 4 * 40
_LARGEST = (1 << 40) - 1
# The fields of a report are int64: sums stop there.
_LARGEST_SUM = (1 << 63) - 1


class Distribution:
    """A histogram. Not thread-safe; a concurrent reader may miss one number."""

    __slots__ = ("counts", "largest", "sum")

    def __init__(self) -> None:
        self.counts = [0] * _CLASSES
        self.sum = 0
        self.largest = 0

    def add(self, number: int) -> None:
        """Counts a number, at most `_LARGEST`: it may come from a message."""
        number = min(number, _LARGEST)
        self.counts[class_of(number)] += 1
        self.sum = min(self.sum + number, _LARGEST_SUM)
        if number > self.largest:
            self.largest = number

    def merge(self, other: Distribution) -> None:
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.sum = min(self.sum + other.sum, _LARGEST_SUM)
        self.largest = max(self.largest, other.largest)

    def found(self) -> dict[int, int]:
        """The classes that are not empty, and how many are in each."""
        return {number: count for number, count in enumerate(self.counts) if count}


def class_of(number: int) -> int:
    """Returns the class of a number from 0 on."""
    if number < 4:
        return number
    bits = number.bit_length()
    return min(4 * (bits - 2) + (number >> (bits - 3)) % 4, _CLASSES - 1)


def middle_of(one: int) -> float:
    """The middle of the numbers in a class."""
    if one < 8:
        return float(one)
    octave, quarter = divmod(one, 4)
    width = 1 << (octave - 1)
    return (4 + quarter) * width + (width - 1) / 2


def quantile(found: Mapping[int, int], share: float) -> float | None:
    """A number that this share of all is not greater than; None if there are none."""
    total = sum(found.values())
    seen = 0
    for one in sorted(found):
        seen += found[one]
        if found[one] > 0 and seen >= share * total:
            return middle_of(one)
    return None
