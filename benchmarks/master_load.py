"""One master with 2,000 workers, one batch per second each: its share of a core, its memory, the latency of a lease.

The master is the process that every job has, with its journal on disk and its token, and a parameter server. The
workers are simulated (`simulated_workers.py`) in a few processes, and cost more than the master. Then 200 of them are
killed at once: measured is the time until the master has requeued their shards. In addition, the state machine alone is
driven with 10,000 workers, without a network. All shares of a core are processor time, so other load on the machine
does not count; the p99 of a lease is wall time and needs an idle machine.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.masters import RunningMaster, our_master
from benchmarks.processes import DEADLINE, ROOT, Stuck, tail, wait_until
from benchmarks.report import Result
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.nodes import JoinNode, ObserveNode
from elasticdl.master.commands.shards import AnnounceDataset, LeaseShards, ReportProgress
from elasticdl.master.job_state import JobState
from elasticdl.master.settings import JobSettings
from elasticdl.platforms.platform import EndReason, NodePhase, NodeStatus
from elasticdl.wire import master_pb2 as pb
from elasticdl.wire.channel import open_channel, read_token
from elasticdl.wire.master_pb2_grpc import MasterStub

NAME = "master_load"
WORKERS, KILLED, ALONE = 2_000, 200, 10_000
PROCESSES = 4
BATCHES, BATCH_SECONDS, BATCH_SIZE = 8, 1.0, 64
_SIZE = 10**9


@dataclass(frozen=True, kw_only=True)
class Measured:
    core_percent: float
    lease_p50_ms: float
    lease_p99_ms: float
    memory_mb: float
    requeued_seconds: float
    replaced_seconds: float
    shards_per_second: float


def run(*, quick: bool, repeat: int) -> list[Result]:
    workers, killed = (100, 10) if quick else (WORKERS, KILLED)
    found = [
        measure(workers, killed, seconds=3.0 if quick else 30.0)
        for _ in range(1 if quick else min(repeat, 3))
    ]
    note = (
        f"{_median(found, 'shards_per_second'):,.0f} shards/s; p50 of a lease {_median(found, 'lease_p50_ms'):.1f} ms; "
        f"replacements requested after {_median(found, 'replaced_seconds'):.1f} s"
    )
    rows = (
        ("share of a core", "%", "core_percent", 50.0),
        ("p99 of a lease", "ms", "lease_p99_ms", 100.0),
        ("memory", "MB", "memory_mb", 500.0),
        (f"{killed} killed at once, requeued", "s", "requeued_seconds", 5.0),
    )
    results = [
        Result(
            benchmark=NAME,
            case=f"{workers:,} workers: {case}",
            unit=unit,
            us=_median(found, name),
            target=f"< {limit:g} {unit}",
            passed=None if quick else _median(found, name) < limit,
            note=note,
        )
        for case, unit, name, limit in rows
    ]
    alone = 500 if quick else ALONE
    percent, requeued = _drive_alone(alone)
    results.append(
        Result(
            benchmark=NAME,
            case=f"{alone:,} workers, state machine alone: share of a core",
            unit="%",
            us=percent,
            note=f"a tenth of them killed: requeued in {requeued:.2f} s of processor time",
        )
    )
    return results


def _median(found: list[Measured], name: str) -> float:
    return float(statistics.median(getattr(each, name) for each in found))


# -- with a network ------------------------------------------------------------------------------------------------


class _Fleet:
    """The processes that simulate the workers, in equal parts."""

    def __init__(self, processes: list[subprocess.Popen[str]]) -> None:
        self._processes = processes

    def ask(self, index: int, *words: str) -> Any:
        process = self._processes[index]
        assert process.stdin is not None
        assert process.stdout is not None
        print(*words, file=process.stdin, flush=True)
        line = process.stdout.readline()
        if not line:
            raise Stuck("simulated workers have ended")
        return json.loads(line)

    def measure(self) -> tuple[list[float], int]:
        found = [self.ask(index, "measure") for index in range(len(self._processes))]
        return [seconds for each in found for seconds in each["lease_seconds"]], sum(
            e["shards"] for e in found
        )


@contextmanager
def _fleet(master: RunningMaster, workers: int, log: Path) -> Iterator[_Fleet]:
    options = {"size": _SIZE, "batches": BATCHES, "batch_seconds": BATCH_SECONDS, "workers": workers}
    share = workers // PROCESSES
    with ExitStack() as stack:
        errors = stack.enter_context(log.open("ab"))
        processes = []
        for number in range(PROCESSES):
            command = [
                *(sys.executable, "-m", "benchmarks.simulated_workers", master.address),
                *(str(master.folder / "token"), str(number * share), str(share), json.dumps(options)),
            ]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                raise Stuck(f"simulated workers ended before they started:\n{tail(log)}")
        yield _Fleet(processes)


def measure(workers: int, killed: int, *, seconds: float) -> Measured:
    with (
        tempfile.TemporaryDirectory() as home,
        our_master(
            Path(home), workers=workers, shard_size=BATCHES * BATCH_SIZE, batches=BATCHES, has_server=True
        ) as master,
        _fleet(master, workers, Path(home) / "workers.log") as fleet,
    ):
        process = psutil.Process(master.pid)
        # Until all have leased a shard.
        time.sleep(BATCHES * BATCH_SECONDS)
        fleet.measure()
        begun, spent = time.monotonic(), _processor_seconds(process)
        time.sleep(seconds)
        leases, shards = fleet.measure()
        took = time.monotonic() - begun
        percent = 100 * (_processor_seconds(process) - spent) / took
        memory = process.memory_info().rss / 1e6
        requeued, replaced = _kill(master, fleet, workers, killed)
        cuts = statistics.quantiles(leases, n=100)
        return Measured(
            core_percent=percent,
            lease_p50_ms=1e3 * cuts[49],
            lease_p99_ms=1e3 * cuts[98],
            memory_mb=max(memory, process.memory_info().rss / 1e6),
            requeued_seconds=requeued,
            replaced_seconds=replaced,
            shards_per_second=shards / took,
        )


def _processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _kill(master: RunningMaster, fleet: _Fleet, workers: int, killed: int) -> tuple[float, float]:
    """Seconds until the master has requeued all their shards, and until it has requested as many replacements."""
    host = master.host
    assert host is not None
    # All workers of one process, which closes their connections; the others continue.
    victims = [f"worker-{number}" for number in range(killed)]
    before = len(host.started)
    channel = open_channel(master.address, read_token(master.folder / "token"))
    stub = MasterStub(channel)  # type: ignore[no-untyped-call]
    fleet.ask(0, "kill", *victims)
    begun = time.monotonic()
    host.kill(victims)

    def is_requeued() -> bool:
        status = json.loads(stub.Status(pb.StatusRequest(brief=True), timeout=DEADLINE).json)
        return not any(node["name"] in victims and node.get("shards") for node in status["nodes"])

    wait_until(is_requeued, "the shards of killed workers are requeued", every=0.05)
    requeued = time.monotonic() - begun
    wait_until(lambda: len(host.started) >= before + killed, "replacements are requested", every=0.05)
    replaced = time.monotonic() - begun
    channel.close()
    return requeued, replaced


# -- the state machine alone ---------------------------------------------------------------------------------------


def _drive_alone(workers: int) -> tuple[float, float]:
    """Percent of a core for so many workers, one batch per second; seconds to requeue the shards of a tenth of them."""
    spec = JobSpec.build(
        job_name="alone",
        model_zoo="zoo",
        model_def="any.model.custom_model",
        training_data="data",
        distribution_strategy="ParameterServerStrategy",
        num_workers=workers,
        num_ps=1,
        minibatch_size=BATCH_SIZE,
        num_minibatches_per_task=BATCHES,
    )
    state = JobState(JobSettings.of(spec))
    names = [f"worker-{number}" for number in range(workers)]
    state.apply(JoinNode(node="ps-0", incarnation="i", address="here:1"))
    for name in names:
        state.apply(JoinNode(node=name, incarnation="i", address=""))
    state.apply(AnnounceDataset(dataset="training", size=_SIZE))
    held = {name: _lease(state, name, 1) for name in names}
    rounds = 3
    begun = time.process_time()
    for number in range(rounds):
        # Each leases a shard and reports the previous one, as it does in BATCHES seconds.
        for name in names:
            upcoming = _lease(state, name, number + 2)
            lease = held[name]
            state.apply(
                ReportProgress(
                    worker=name,
                    report_id=number + 1,
                    progress=[(lease.lease_id, lease.end, BATCHES, False)],
                    bad=[],
                    loss_sum=0.0,
                    loss_batches=BATCHES,
                    stop_training=False,
                )
            )
            held[name] = upcoming
    percent = 100 * (time.process_time() - begun) / (rounds * BATCHES * BATCH_SECONDS)
    begun = time.process_time()
    for name in names[: workers // 10]:
        status = NodeStatus(
            name=name, role="worker", phase=NodePhase.FAILED, reason=EndReason.KILLED, exit_code=137
        )
        state.apply(ObserveNode(status=status))
    return percent, time.process_time() - begun


def _lease(state: JobState, name: str, number: int) -> Any:
    (lease,) = state.apply(LeaseShards(worker=name, dataset="training", count=1, request_id=number))
    return lease
