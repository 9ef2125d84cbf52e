"""How often a worker tells its master how far it has come.

A worker that is killed loses what it has not told. A tenth of a second of the whole job's work is little, so that is
how much one worker may have to tell: all together report at most ten times a second, be they two or two hundred, and
what their master has to do does not grow with their number.
"""

from __future__ import annotations

import os

from elasticai_api.common.constants import PodEnv

REPORTS_A_SECOND = 10.0


def pause_seconds(least: float) -> float:
    """Between two reports of a worker of this job, which are never closer together than `least`."""
    # As it was when this process started. Those that came later know better, and are the more the more it matters.
    text = os.environ.get(PodEnv.WORKER_NUM, "")
    return max(least, int(text) / REPORTS_A_SECOND) if text.isdecimal() else least
