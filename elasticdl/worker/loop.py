"""The interface of a worker's loop: training, evaluation or prediction.

It stands apart from the loops, which need NumPy: a worker that replaces another does not import that before the
framework does.
"""

from __future__ import annotations

from typing import Protocol


class Loop(Protocol):
    """A loop of a worker until its job has no more work."""

    # The lease that is being worked on; 0 if there is none. Reported to the master if the program fails.
    lease_id: int

    def run(self) -> None: ...
