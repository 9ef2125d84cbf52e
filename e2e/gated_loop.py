"""`python -m e2e.gated_loop [--with_compiler] MODULE ARGUMENTS...`: a loop with an elastic controller that can be held.

Runs the module as `python -m MODULE` would. When it has made as many steps as the file `hold` says, while there is
one, it does not go on to the next batch, and says so by a file `held-STEPS-NODE`. A worker that is drained meanwhile
does exit on: it leaves.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

from e2e.compiler import leave_out
from elasticai_api.pytorch.controller import ElasticController

GATES = Path(os.environ["ELASTICDL_TEST_GATES"])
NODE = os.environ["ELASTICDL_NODE"]


def _held_at() -> float:
    """The step at which this process has to stop."""
    try:
        return int((GATES / "hold").read_text())
    except FileNotFoundError:
        return float("inf")


def main(module: str, arguments: list[str]) -> None:
    if module == "--with_compiler":
        module, *arguments = arguments
    else:
        leave_out()
    following = ElasticController._next

    def gated(controller: Any) -> Any:
        # Before its first batch it has not met the others.
        while controller._team is not None and controller.step >= (step := _held_at()):
            (GATES / f"held-{step}-{NODE}").touch()
            if controller._team.standing().leaving:
                break
            time.sleep(0.01)
        return following(controller)

    ElasticController._next = gated  # type: ignore[assignment, method-assign]
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
