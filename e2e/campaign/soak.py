"""`python -m e2e.campaign.soak --minutes=120`: one long job, a kill every 20 seconds, and what grows meanwhile.

Workers, parameter servers and the master are killed in turns, the victims drawn by a seed. The job trains `zoo/oracle`,
so its parameters say afterwards how often each sample was applied. A thread of this process measures memory,
descriptors and threads of all processes of the job and its files, and paces the workers so that the last sample comes
when the time is over.

Failure modes: exit code 1 if the job fails, the audit is not exact, a parameter is wrong, or something grew. Replaced
processes begin from nothing, so growth is looked for by role: the median of the last quarter against that of the
second. The command and its supervisor live as long as the job.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from e2e.campaign.counting_job import BATCH_SIZE, find_miscounts, start_counting
from e2e.conftest import Job

KILL_SECONDS, SAMPLE_SECONDS = 20.0, 10.0
WORKERS, SERVERS = 2, 3
ROLES = ("worker", "ps", "master")
# An epoch: its ledger and its checkpoint are small beside what a process needs in any case.
SIZE = 9_600
# Of all workers together, while none is missing.
_BATCHES_PER_SECOND = 12.0
# What the median of the last quarter may be above that of the second: a part of it, and so much.
_LIMITS = {"rss_bytes": (0.10, 8e6), "descriptors": (0.0, 3.0), "threads": (0.0, 3.0), "files": (0.0, 10.0)}

Sample = dict[str, Any]


class Resources:
    """What the processes of a job hold, again and again; one line of JSON each time."""

    def __init__(self, job: Job, folder: Path) -> None:
        self._job = job
        self._folder = folder
        self.samples: list[Sample] = []

    def measure(self, processes: dict[str, psutil.Process], seconds: float) -> Sample:
        alone = psutil.Process(self._job.process.pid)
        everything = {"command": alone, **processes}
        for child in alone.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "platforms.local.supervisor" in " ".join(child.cmdline()):
                    everything["supervisor"] = child
        sample: Sample = {"seconds": round(seconds, 1), "nodes": {}, "files": self._count_files()}
        for name, process in everything.items():
            with contextlib.suppress(psutil.Error):
                sample["nodes"][name] = {
                    "rss_bytes": process.memory_info().rss,
                    "descriptors": process.num_fds(),
                    "threads": process.num_threads(),
                    "age_seconds": round(time.time() - process.create_time(), 1),
                }
        self.samples.append(sample)
        return sample

    def _count_files(self) -> dict[str, int]:
        """By folder. The log of each node and the TensorBoard events of each master are kept, and not among them."""
        found: collections.Counter[str] = collections.Counter()
        for place in (self._job.folder, self._folder / "checkpoints"):
            for folder, _, names in os.walk(place):
                if Path(folder).name not in ("logs", "tensorboard"):
                    found[place.name] += len(names)
        return dict(found)


def find_growth(samples: list[Sample]) -> tuple[list[str], list[str]]:
    """A line for each role and quantity, and those that grew."""
    quarter = len(samples) // 4
    early, late = samples[quarter : 2 * quarter], samples[-quarter:]
    lines, grown = [], []
    for role, what in _quantities(samples):
        before, after = (_median(part, role, what) for part in (early, late))
        share, margin = _LIMITS[what]
        line = f"{role} {what}: {before:,.0f} in the second quarter, {after:,.0f} in the last"
        lines.append(line)
        if after > before * (1 + share) + margin:
            grown.append(line)
    return lines, grown


def _quantities(samples: list[Sample]) -> Iterator[tuple[str, str]]:
    for role in ("command", "supervisor", *sorted(ROLES)):
        for what in ("rss_bytes", "descriptors", "threads"):
            yield role, what
    for place in sorted(samples[-1]["files"]):
        yield place, "files"


def _median(samples: list[Sample], role: str, what: str) -> float:
    if what == "files":
        return float(statistics.median(sample["files"].get(role, 0) for sample in samples))
    # A process that has just been started does not have what it will need yet.
    values = [
        values[what]
        for sample in samples
        for name, values in sample["nodes"].items()
        if name.rsplit("-", 1)[0] == role and values["age_seconds"] > SAMPLE_SECONDS
    ]
    return float(statistics.median(values)) if values else 0.0


class _Pace:
    """Seconds a batch takes, in a file that all workers read: what is left is spread over the time that is left."""

    def __init__(self, gates: Path, *, batches: int, seconds: float) -> None:
        self._file = gates / "pace"
        self._batches, self._end = batches, time.monotonic() + seconds
        self.adjust(0)

    def adjust(self, step: int) -> None:
        left, seconds = max(self._batches - step, 1), max(self._end - time.monotonic(), 0.0)
        pace = min(WORKERS * seconds / left, 1.0)
        temporary = self._file.with_suffix(".new")
        temporary.write_text(f"{pace:.4f}")
        temporary.replace(self._file)


def _kill_in_turns(
    job: Job, source: random.Random, stopped: threading.Event, kills: list[str], end: float
) -> None:
    turn = 0
    while not stopped.wait(KILL_SECONDS) and time.monotonic() < end:
        processes = job.processes()
        role = ROLES[turn % len(ROLES)]
        victims = sorted(name for name in processes if name.rsplit("-", 1)[0] == role)
        if victims:
            victim = source.choice(victims)
            with contextlib.suppress(psutil.Error):
                processes[victim].send_signal(signal.SIGKILL)
                kills.append(victim)
                turn += 1


def run(folder: Path, *, minutes: float, seed: int) -> int:
    seconds = 60 * minutes
    epochs = max(round(_BATCHES_PER_SECOND * seconds * BATCH_SIZE / SIZE), 1)
    gates = folder / "gates"
    gates.mkdir(parents=True)
    (folder / "home").mkdir()
    pace = _Pace(gates, batches=epochs * SIZE // BATCH_SIZE, seconds=seconds)

    def start(*arguments: str, environment: dict[str, str]) -> Job:
        names = {"ELASTICDL_TEST_GATES": str(gates), "ELASTICDL_THREADS": "1", **environment}
        return Job(folder / "home", [*arguments], names)

    job = start_counting(
        start,
        folder,
        f"--num_workers={WORKERS}",
        f"--num_ps={SERVERS}",
        "--checkpoint_steps=500",
        size=SIZE,
        epochs=epochs,
        seed=seed,
    )
    print(f"Soaking for {minutes:g} minutes: {epochs} epochs of {SIZE:,} samples, in {folder}", flush=True)
    resources, kills, stopped = Resources(job, folder), list[str](), threading.Event()
    begun = time.monotonic()
    killer = threading.Thread(
        target=_kill_in_turns,
        args=(job, random.Random(seed), stopped, kills, begun + seconds),
        daemon=True,
    )
    killer.start()
    with (folder / "samples.jsonl").open("w") as file:
        while job.process.poll() is None:
            time.sleep(SAMPLE_SECONDS)
            pace.adjust(job.status().get("step") or 0)
            processes = job.processes()
            # At the end there is nothing left to measure.
            if job.process.poll() is None and processes:
                with contextlib.suppress(psutil.Error):
                    sample = resources.measure(processes, time.monotonic() - begun)
                    print(json.dumps(sample), file=file, flush=True)
    stopped.set()
    killer.join()
    return _report(job, folder, resources.samples, kills, epochs, time.monotonic() - begun)


def _report(
    job: Job, folder: Path, samples: list[Sample], kills: list[str], epochs: int, seconds: float
) -> int:
    by_role = collections.Counter(name.rsplit("-", 1)[0] for name in kills)
    print(f"{seconds / 60:.1f} minutes, {len(kills)} kills: {dict(by_role)}, {epochs * SIZE:,} samples")
    lines, faults = find_growth(samples)
    print(*lines, sep="\n")
    try:
        job.assert_exact(epochs=epochs, size=SIZE)
    except AssertionError as error:
        faults.append(str(error))
    else:
        print(f"Audit: exact; samples trained again: {sum(row['again'] for row in job.audit()['rows']):,}")
        faults += find_miscounts(folder / "checkpoints", size=SIZE, epochs=epochs)
    print(*(f"FAULT: {fault}" for fault in faults), sep="\n")
    print("soak: failed" if faults else "soak: passed", flush=True)
    return 1 if faults else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.campaign.soak", description="One long job with kills."
    )
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where everything goes; kept, unlike the default")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        return run(arguments.folder, minutes=arguments.minutes, seed=arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        return run(Path(folder), minutes=arguments.minutes, seed=arguments.seed)


if __name__ == "__main__":
    sys.exit(main())
