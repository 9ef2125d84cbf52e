"""The timeouts of the failure detector, derived from the flags of a job.

Kept apart from the rules so that tests and other modules ask for a timeout instead of repeating its formula. A timeout
that the user has switched off is infinite.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection
from dataclasses import dataclass

from elasticdl.master.settings import JobSettings


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    # A worker is stalled after `stall_factor` times the median batch, and never before the floor. 0: never.
    stall_factor: float = 20.0
    stall_floor_seconds: float = 60.0
    # From the start of a node until it joins or asks for data.
    start_seconds: float = 600.0
    # Nodes run job commands: they join no one, and recover from lost servers by themselves.
    runs_programs: bool = False
    # TensorFlow waits half a minute before it looks whether a lost parameter server is back.
    program_stall_factor: float = 3.0
    # From a worker's own error report until its process exits. A cluster may take some seconds to report the exit.
    exit_seconds: float = 30.0
    # The detector is stepped every second. After a longer gap the master itself was suspended and has received nothing.
    master_pause_seconds: float = 10.0
    # If no worker at all can be reached, the network may be down: all of them get so much longer.
    all_unresponsive_factor: float = 4.0
    # Part of the stall floor: a worker that waits for a server must not time out before the server does.
    server_fraction: float = 0.5
    # A server whose loss would lose the model gets so much longer.
    irreplaceable_factor: float = 4.0
    # A node that is only slow has joined, or answered, by then.
    report_seconds: float = 30.0

    @classmethod
    def of(cls, plan: JobSettings) -> Timeouts:
        return cls(
            stall_factor=plan.stall_factor,
            stall_floor_seconds=plan.stall_floor_seconds,
            start_seconds=plan.start_timeout_seconds or math.inf,
            runs_programs=plan.runs_command,
        )

    @property
    def detects_stalls(self) -> bool:
        return bool(self.stall_factor)

    def stall_seconds(self, batch_seconds: Collection[float]) -> float:
        """Returns `max(floor, stall_factor · median(batch_seconds))`; `batch_seconds`: the last of each worker."""
        if not self.detects_stalls:
            return math.inf
        floor = self.stall_floor_seconds * (self.program_stall_factor if self.runs_programs else 1.0)
        usual = statistics.median(batch_seconds) if batch_seconds else 0.0
        return max(floor, self.stall_factor * usual)

    def server_seconds(self, *, replaceable: bool) -> float:
        """`replaceable`: the model survives the loss of the servers that do not answer."""
        if not self.detects_stalls:
            return math.inf
        seconds = self.server_fraction * self.stall_floor_seconds
        return seconds if replaceable else self.irreplaceable_factor * seconds
