"""Journal commands: everything that may change the state of a job, as frozen dataclasses.

One module per part of the state. `command.py` has the base class and the registry, `codec.py` the JSON form that the
journal keeps, `executor.py` the interface through which components send commands. The state machine (`job_state.py`)
has one handler for each command.
"""

from elasticdl.master.commands import (
    bucket_placement,
    checkpoints,
    evaluations,
    job,
    nodes,
    programs,
    recovery,
    shards,
)

__all__ = ["bucket_placement", "checkpoints", "evaluations", "job", "nodes", "programs", "recovery", "shards"]
