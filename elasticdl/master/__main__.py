"""`python -m elasticdl.master`: the process of a job's master, on this machine (`local_master.py`) or in a pod
(`pod_master.py`).

What only the other one needs is not imported: a job begins when its master does.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from elasticdl.worker.garbage_collection import keep_all, nothing_collected


def main() -> int:
    name = "kubernetes.pod_master" if os.environ.get("ELASTICDL_PLATFORM") == "kubernetes" else "local_master"
    with nothing_collected():
        module = import_module(f"elasticdl.master.{name}")
    keep_all()
    return int(module.main())


if __name__ == "__main__":
    sys.exit(main())
