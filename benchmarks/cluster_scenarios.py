"""Simulates the allocation of nodes to jobs: our planner against EDL's rule, Tiresias, gangs and fixed sizes.

The built-in scenarios need no input. The workloads of the Pollux paper are read from the folder that `ELASTICDL_TRACES`
names (or `--traces`, if the module is run directly); without it they are omitted. Calibration comes first: the
simulated figures of the peers are compared with the published ones, and only then with ours.

    python -m benchmarks cluster_scenarios
    python -m benchmarks.cluster_scenarios --traces FOLDER [--resize_cost 30] [--load 2]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Result, print_results
from elasticdl.simulator.engine import Simulation
from elasticdl.simulator.inputs import read_workloads
from elasticdl.simulator.policies import make_policy
from elasticdl.simulator.run_result import RunResult, jain_index
from elasticdl.simulator.scenarios import EDL_CASE2_STEPS, edl_case1, edl_case2, nginx_colocation, two_jobs
from elasticdl.simulator.workload import CPU, Workload

NAME = "cluster_scenarios"
TRACES = "ELASTICDL_TRACES"
# Mean completion times of workloads 1 to 4 at load 1.0, seconds.
POLLUX = (2089.0, 3323.0, 2188.0, 2721.0)
TIRESIAS = (2474.0, 5145.0, 3876.0, 3280.0)
# Waiting times of the ten published runs of EDL case 1: their smallest, largest and mean.
EDL_WAITING = (24.0, 85.0, 47.2)
STATIC_WAITING = 308.5
# Plateaus are measured long after the last job was submitted.
_PLATEAU = 330.0
_TRAINER, _SERVER, _MASTER = 5_000, 4_000, 1_000


def run(*, quick: bool, repeat: int) -> list[Result]:
    folder = os.environ.get(TRACES, "")
    results = [*_edl_case1(seeds=1 if quick else 10), *_edl_case2(), *_two_jobs(), *_nginx()]
    if folder:
        results += pollux(Path(folder), first_only=quick)
        if not quick:
            results += pollux(Path(folder), load=2.0)
    return results


def _run(workload: Workload, policy: str, seed: int = 0) -> RunResult:
    return Simulation(workload, make_policy(policy), seed=seed).run()


def _result(case: str, unit: str, us: float, peer: float | None = None, *, note: str = "") -> Result:
    return Result(benchmark=NAME, case=case, unit=unit, us=us, peer=peer, note=note)


def _target(result: Result, text: str, passed: bool) -> Result:
    return Result(**{**vars(result), "target": text, "passed": passed})


# EDL


def packing_limit(free: Sequence[int], *, servers: int, trainers: int, masters: int) -> float:
    """Returns the most CPU (milli) that the jobs could use with the best placement of their pods.

    Dynamic programming over machines: the most trainers for each number of parameter servers placed.
    Masters are small enough for the remaining CPU.
    """
    none = -(10**9)
    best = [0] + [none] * servers
    for room in free:
        patterns = [(count, (room - count * _SERVER) // _TRAINER) for count in range(room // _SERVER + 1)]
        after = list(best)
        for placed, most in enumerate(best):
            if most == none:
                continue
            for more, workers in patterns:
                place = min(placed + more, servers)
                after[place] = max(after[place], most + workers)
        best = after
    used = servers * _SERVER + masters * _MASTER + min(max(best[servers], 0), trainers) * _TRAINER
    return min(used, sum(free))


def _edl_case1(*, seeds: int) -> list[Result]:
    workload = edl_case1()
    ours = _run(workload, "elasticdl")
    theirs = [_run(workload, "edl", seed) for seed in range(seeds)]
    static = _run(workload, "static")
    fifo = _run(workload, "fifo")
    free = [machine.allocatable[CPU] for machine in workload.machines]
    limit = packing_limit(free, servers=200, trainers=1200, masters=20) / sum(free)
    waits = [run.summary().mean_first_instance for run in theirs]
    mean_wait = statistics.fmean(waits)
    plateau = ours.average("utilisation", start=_PLATEAU)
    their_plateau = statistics.fmean(run.average("utilisation", start=_PLATEAU) for run in theirs)
    jain, their_jain = _final_jain(ours), statistics.fmean(map(_final_jain, theirs))
    summary = ours.summary()
    calibration = _target(
        _result(
            "EDL case 1, calibration: EDL's rule, mean until the first trainer runs",
            "s",
            mean_wait,
            EDL_WAITING[2],
            note=f"{seeds} runs, {min(waits):.0f} to {max(waits):.0f} s; published 24 to 85 s; until a job trains "
            f"with all of its parameter servers {statistics.fmean(run.summary().mean_waiting for run in theirs):.0f} s",
        ),
        "24 to 85 s",
        EDL_WAITING[0] <= mean_wait <= EDL_WAITING[1],
    )
    fixed = _target(
        _result(
            "EDL case 1, calibration: fixed sizes, waiting",
            "s",
            static.summary().mean_first_instance,
            STATIC_WAITING,
        ),
        "within 5 %",
        abs(static.summary().mean_first_instance / STATIC_WAITING - 1) <= 0.05,
    )
    return [
        calibration,
        fixed,
        _target(
            _result(
                "EDL case 1, waiting until a job trains",
                "s",
                summary.mean_waiting,
                statistics.fmean(run.summary().mean_waiting for run in theirs),
                note=f"peer: EDL's rule; fifo {fifo.summary().mean_waiting:.0f} s, static "
                f"{static.summary().mean_waiting:.0f} s",
            ),
            "< 20 s",
            summary.mean_waiting < 20,
        ),
        _target(
            _result(
                "EDL case 1, jobs stuck", "jobs", summary.stuck, statistics.fmean(r.summary().stuck for r in theirs)
            ),
            "0",
            summary.stuck == 0,
        ),
        _target(
            _result(
                "EDL case 1, plateau of the utilisation",
                "%",
                100 * plateau,
                100 * their_plateau,
                note=f"packing allows {100 * limit:.1f} %; ours is {100 * plateau / limit:.1f} % of that",
            ),
            f"≥ {95 * limit:.1f} %",
            plateau >= 0.95 * limit,
        ),
        _target(
            _result("EDL case 1, Jain's index of the final sizes", "", jain, their_jain),
            "≥ 0.95",
            jain >= 0.95,
        ),
    ]  # fmt: skip


def _final_jain(run: RunResult) -> float:
    return jain_index(job.size_at(run.end) for job in run.jobs)


def _edl_case2() -> list[Result]:
    workload = edl_case2()
    limits: dict[float, float] = {}
    moments = [at - 5.0 for at, _ in EDL_CASE2_STEPS[1:]] + [(workload.horizon or 0.0) - 5.0]
    simulation = Simulation(workload, make_policy("elasticdl"))
    total = sum(machine.allocatable[CPU] for machine in workload.machines)

    def measure(now: float, done: int, jobs: int) -> None:
        # The placement of NGINX by the cluster's scheduler is given; jobs can only use the rest.
        while moments and now >= moments[0]:
            moments.pop(0)
            used = simulation.service_use()
            free = [
                machine.allocatable[CPU] - use for machine, use in zip(workload.machines, used, strict=True)
            ]
            most = packing_limit(free, servers=60, trainers=360, masters=6)
            limits[now] = (sum(used) + most) / total

    ours = simulation.run(on_progress=measure)
    theirs = _run(workload, "edl")
    # Each phase of NGINX from 20 s after its change.
    phases = [(at + 20.0, at + 90.0) for at, _ in EDL_CASE2_STEPS[1:]]
    settled = statistics.fmean(ours.average("utilisation", start=a, end=b) for a, b in phases)
    their_settled = statistics.fmean(theirs.average("utilisation", start=a, end=b) for a, b in phases)
    limit = statistics.fmean(list(limits.values())[1:])
    off_peak = ours.average("utilisation", start=310.0, end=380.0)
    delay, their_delay = _slowest_step(ours), _slowest_step(theirs)
    return [
        _target(
            _result(
                "EDL case 2, utilisation",
                "%",
                100 * settled,
                100 * their_settled,
                note=f"packing around NGINX allows {100 * limit:.1f} %; ours is {100 * settled / limit:.1f} % of "
                f"that; off-peak {100 * off_peak:.1f} %; published 83.4 %, off-peak 79.4 %",
            ),
            f"≥ {95 * limit:.1f} %",
            settled >= 0.95 * limit,
        ),
        _target(
            _result("EDL case 2, slowest return of NGINX to its target", "s", delay, their_delay),
            "≤ 15 s",
            delay <= 15,
        ),
    ]


def _slowest_step(run: RunResult) -> float:
    """Seconds from an increase of the desired replicas of a service until all ran; the slowest."""
    slowest = 0.0
    missing_since: float | None = 0.0
    target = 0
    for sample in run.samples:
        if sample.service_target > target:
            missing_since = sample.at
        target = sample.service_target
        if missing_since is not None and sample.service_running >= target:
            slowest = max(slowest, sample.at - missing_since)
            missing_since = None
    return max(slowest, run.end - missing_since) if missing_since is not None else slowest


# ElasticDL


def _two_jobs() -> list[Result]:
    workload = two_jobs()
    runs = {name: _run(workload, name) for name in ("elasticdl", "edl", "fifo", "static")}
    ends = {name: max(job.completed_at or run.end for job in run.jobs) for name, run in runs.items()}
    optimum = two_job_optimum()
    return [
        _target(
            _result(
                "two 13-CPU jobs on 24 CPUs, until both are done",
                "s",
                ends["elasticdl"],
                optimum,
                note=f"peer: work-conserving optimum; fifo {ends['fifo']:.0f} s (published gang 795), "
                f"static {ends['static']:.0f} s, edl {ends['edl']:.0f} s, published elastic 580 s; "
                f"utilisation {100 * runs['elasticdl'].summary().utilisation:.0f} %",
            ),
            "≤ 1.05×",
            ends["elasticdl"] <= 1.05 * optimum,
        )
    ]  # fmt: skip


def two_job_optimum() -> float:
    """Time until both jobs are done if resizes take no time: the second has one worker until the first is done."""
    workload = two_jobs()
    start = workload.rules.pod_start
    alone = 380.0
    first_done = start + alone
    left = 2 * alone - (first_done - 30.0 - start)
    return first_done + left / 2


def _nginx() -> list[Result]:
    workload = nginx_colocation()
    ours, theirs = _run(workload, "elasticdl"), _run(workload, "edl")
    return [
        _target(
            _result(
                "one job beside NGINX, utilisation",
                "%",
                100 * ours.average("utilisation", start=60.0),
                100 * theirs.average("utilisation", start=60.0),
                note="published: above 90 %",
            ),
            "> 90 %",
            ours.average("utilisation", start=60.0) > 0.9,
        ),
        _target(
            _result(
                "one job beside NGINX, slowest return of NGINX",
                "s",
                _slowest_step(ours),
                _slowest_step(theirs),
            ),
            "≤ 15 s",
            _slowest_step(ours) <= 15,
        ),
    ]


# Pollux


def pollux(
    folder: Path, *, load: float = 1.0, resize_cost: float | None = None, first_only: bool = False
) -> list[Result]:
    """Mean completion times of the workloads of a folder, ours and the peers' in the same run."""
    workloads = [
        one.with_load(load).with_rules(resize_cost=resize_cost) for one in read_workloads(str(folder))
    ]
    workloads = workloads[:1] if first_only else workloads
    means: dict[str, list[float]] = {}
    resizes: list[float] = []
    results: list[Result] = []
    label = "Pollux" + (f", load {load:g}" if load != 1 else "")
    label += f", {resize_cost:g} s a resize" if resize_cost is not None else ""
    is_published = load == 1 and resize_cost is None
    for number, workload in enumerate(workloads):
        for policy in ("elasticdl", "edl", "tiresias"):
            summary = _run(workload, policy).summary()
            means.setdefault(policy, []).append(summary.mean_completion or float("inf"))
            if policy == "elasticdl":
                resizes.append(summary.resizes_per_job)
        if is_published and number < len(POLLUX):
            theirs = means["tiresias"][-1]
            results.append(
                _target(
                    _result(
                        f"{label}, {workload.name}, calibration: Tiresias", "s", theirs, TIRESIAS[number]
                    ),
                    "within 2 %",
                    abs(theirs / TIRESIAS[number] - 1) <= 0.02,
                )
            )
            us = means["elasticdl"][-1]
            results.append(
                _target(
                    _result(
                        f"{label}, {workload.name}, mean completion",
                        "s",
                        us,
                        POLLUX[number],
                        note=f"peer: Pollux, published; EDL's rule {means['edl'][-1]:.0f} s",
                    ),
                    "≤ 1.03×",
                    us <= 1.03 * POLLUX[number],
                )
            )
    mean = {policy: statistics.fmean(values) for policy, values in means.items()}
    note = (
        f"{len(workloads)} workloads; EDL's rule {mean['edl']:.0f} s, Tiresias {mean['tiresias']:.0f} s; "
        f"{statistics.fmean(resizes):.1f} resizes a job"
    )
    if is_published and not first_only:
        peer = statistics.fmean(POLLUX)
        overall = _result(f"{label}, mean of all", "s", mean["elasticdl"], peer, note=note)
        results.append(_target(overall, "≤ 0.9×", mean["elasticdl"] <= 0.9 * peer))
    else:
        peer = min(mean["edl"], mean["tiresias"])
        overall = _result(f"{label}, mean of all", "s", mean["elasticdl"], peer, note=note)
        results.append(
            _target(overall, "≤ 0.6×", mean["elasticdl"] <= 0.6 * peer)
            if load == 2 and not first_only
            else overall
        )
    return results


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster_scenarios", description=__doc__)
    parser.add_argument("--traces", type=Path, default=None, help="folder of the Pollux workloads")
    parser.add_argument("--load", type=float, default=1.0, help="divide arrival times by this")
    parser.add_argument(
        "--resize_cost", type=float, default=None, help="seconds, instead of the published 30"
    )
    arguments = parser.parse_args()
    results = run(quick=False, repeat=1) if arguments.traces is None else []
    if arguments.traces is not None:
        results = pollux(arguments.traces, load=arguments.load, resize_cost=arguments.resize_cost)
    print_results(results)
    return 0 if all(result.passed is not False for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
