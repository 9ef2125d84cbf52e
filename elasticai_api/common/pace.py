"""The rate at which a worker reports its progress to the master.

A killed worker loses what it has not reported. A tenth of a second of the whole job's work is little, so that is
how much one worker may have unreported: all together report at most ten times a second, be they two or two hundred, and
the master's load does not grow with their number.
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
