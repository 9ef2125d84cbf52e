"""A worker's pod is deleted: the time until its replacement exists.

The clock starts with the command (`kubectl delete pod`), as for a user, and ends when a watch from outside sees the new
pod. The time from the deletion that the watch sees to the new pod is reported too: the time before that is kubectl's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from benchmarks.kubernetes.place import Place, Seen, load
from benchmarks.report import Result

NAME = "kubernetes"
TARGET_SECONDS = 1.0


def run(place: Place, *, quick: bool, repeat: int) -> list[Result]:
    place.submit("job", "light", "--num_workers=2", "--envs=BATCH_SECONDS=0.1")
    oldest, newest = 0, 1
    for number in (oldest, newest):
        place.wait_running(_pod(number))
    whole, ours = [], []
    for _ in range(repeat):
        begun, since = time.monotonic(), place.now()
        place.kubectl("delete", "pod", _pod(oldest), "--wait=false")
        deleted = place.wait_for(_pod(oldest), lambda seen: seen.leaving, "is leaving", since=since)
        made = place.wait(_added(_pod(newest + 1)), "a pod takes its place", since=since)
        whole.append(made.seconds - begun)
        ours.append(made.seconds - deleted.seconds)
        oldest, newest = oldest + 1, newest + 1
        place.wait_running(_pod(newest))
    place.end("job")
    median = statistics.median(whole)
    return [
        Result(
            benchmark=NAME,
            case="worker deleted, until its replacement is there",
            unit="s",
            us=median,
            compared=f"{median:.3f} s",
            target=f"< {TARGET_SECONDS:g} s",
            passed=median < TARGET_SECONDS,
            note=f"from the deletion that a watch sees it is {statistics.median(ours):.3f} s (at most "
            f"{max(ours):.3f} s), the rest is kubectl's; {len(whole)} times; {load()}",
        )
    ]


def _pod(number: int) -> str:
    return f"job-edljob-worker-{number}"


def _added(pod: str) -> Callable[[Seen], bool]:
    def found(seen: Seen) -> bool:
        return seen.name == pod and seen.kind == "ADDED"

    return found
