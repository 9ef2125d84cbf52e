"""`python -m e2e.gated_program MODULE ARGUMENTS...`: a program of the model zoo, unchanged, with points to stop at.

Runs the module as `python -m MODULE` would. It can be stopped before it begins (`start`), at each shard that it
fetches (`fetch`) and when it is through (`end`): while there is a file `hold-POINT-NODE`, or `hold-POINT` for all
nodes, it stays there and says so by a file `held-POINT-NODE`. A number in the file of a hold is how often the point is
passed before. So a test lets a job come to a point, kills a process exactly there, and lets it go on.

Each process leaves what it was given in `environment-NODE`. A worker of TensorFlow looks every three seconds, and not
every thirty, whether the chief has made or restored the model. Where nothing else is tested, less is computed: no
garbage collection while a graph is made, and PyTorch comes without its compiler.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

GATES = Path(os.environ["ELASTICDL_TEST_GATES"])
NODE = os.environ.get("ELASTICDL_NODE", "alone")
NAMES = (
    "TF_CONFIG",
    "WORKER_ID",
    "WORKER_TYPE",
    "WORKER_NUM",
    "MASTER_ADDR",
    "DLROVER_MASTER_ADDR",
    "MY_POD_IP",
)


class Gate:
    def __init__(self, point: str) -> None:
        self._point = point
        self._passed = 0
        self._holds = [GATES / f"hold-{point}-{NODE}", GATES / f"hold-{point}"]

    def __call__(self) -> None:
        while any(self._held_by(hold) for hold in self._holds):
            (GATES / f"held-{self._point}-{NODE}").touch()
            time.sleep(0.01)
        self._passed += 1

    def _held_by(self, hold: Path) -> bool:
        try:
            return self._passed >= int(hold.read_text() or 0)
        except FileNotFoundError:
            return False


def look_often() -> None:
    """For TensorFlow's workers. It is imported by the program anyway."""
    from tensorflow.compat.v1.train import SessionManager

    SessionManager.__init__ = functools.partialmethod(SessionManager.__init__, recovery_wait_secs=3)


def leave_out_compiler() -> None:
    """For programs with PyTorch. As TensorFlow's above, it is imported by the program anyway."""
    from e2e.compiler import leave_out

    leave_out()


def main(module: str, arguments: list[str]) -> None:
    given = {name: os.environ[name] for name in NAMES if name in os.environ}
    (GATES / f"environment-{NODE}").write_text(json.dumps(given))
    Gate("start")()
    # A graph is millions of objects that stay.
    gc.set_threshold(100_000, 50, 50)
    from elasticai_api.common.data_shard_service import DataShardService

    fetch, gate = DataShardService.fetch_shard, Gate("fetch")

    def gated(service: Any) -> Any:
        gate()
        return fetch(service)

    DataShardService.fetch_shard = gated  # type: ignore[assignment, method-assign]
    if "TF_CONFIG" in os.environ:
        look_often()
    if "torch" in module:
        leave_out_compiler()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    Gate("end")()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
