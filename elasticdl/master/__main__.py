"""`python -m elasticdl.master`: the process of a job's master, on this machine (`local.py`) or in a pod (`pod.py`).

What only the other one needs is not imported: a job begins when its master does.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    if os.environ.get("ELASTICDL_PLATFORM") == "kubernetes":
        from elasticdl.master import pod

        return pod.main()
    from elasticdl.master import local

    return local.main()


if __name__ == "__main__":
    sys.exit(main())
