"""`python -m benchmarks [NAME ...]`: measures, prints and saves each result as it is found. The exit code is 1 if a
target was missed.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from benchmarks.performance.run_log import RunLog
from benchmarks.processes import ROOT, Stuck
from benchmarks.report import Result, print_line, print_results

NAMES = (
    "master_shards",
    "master_memory",
    "master_load",
    "one_worker",
    "first_batch",
    "kill_one_of_two",
    "estimator",
    "allreduce",
    "tables",
    "server_rows",
    "parameter_servers",
    "paddle_guide",
    "cluster_scenarios",
    "dashboard",
    "planning_time",
    "controller_scale",
    "cost_curves",
)
# Only by name: they need a cluster, or root on Debian.
MORE_NAMES = ("kubernetes", "elastic_cluster", "paddle_cluster", "controller_process")
# --brief: one figure for each claim in ten minutes; of some benchmarks only the cases with this in their name.
_ONLY = "ELASTICDL_BENCHMARK_ONLY"
BRIEF = {
    "master_shards": "",
    "one_worker": "",
    "first_batch": "",
    "allreduce": "",
    "parameter_servers": "TorchRec",
}


def main() -> int:
    _heed_signals()
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which: {', '.join((*NAMES, *MORE_NAMES))}; all but {', '.join(MORE_NAMES)} if none is named",
    )
    parser.add_argument(
        "--quick", action="store_true", help="once and short: checks that it runs, not how fast"
    )
    parser.add_argument(
        "--brief", action="store_true", help="one figure for each claim, once, in ten minutes"
    )
    parser.add_argument("--repeat", type=int, default=0, help="repetitions of each; the median counts (5)")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="PATH",
        help="also write each result to this file as soon as it is measured; in a folder, one file per run",
    )
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in (*NAMES, *MORE_NAMES)]
    if unknown:
        parser.error(
            f"there is no benchmark {', '.join(unknown)}; there are {', '.join((*NAMES, *MORE_NAMES))}"
        )
    if arguments.brief and arguments.quick:
        parser.error("--brief measures and --quick does not: give one of them")
    repeat = arguments.repeat or (1 if arguments.quick or arguments.brief else 5)
    # As in an installed package, and as for the peers: otherwise every process would compile our modules again.
    for package in ("elasticai_api", "elasticdl", "benchmarks"):
        compileall.compile_dir(str(ROOT / package), quiet=1)
    # Dependencies are installed without bytecode: the first process that imports them compiles them.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    log = RunLog(arguments.json, quick=arguments.quick, repeat=repeat)
    results: list[Result] = []
    for name in arguments.names or (BRIEF if arguments.brief else NAMES):
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        if arguments.brief:
            os.environ[_ONLY] = BRIEF.get(name, "")
        for result in _measured(name, quick=arguments.quick, repeat=repeat):
            results.append(result)
            log.add(result)
            print_line(result)
    log.complete()
    if sys.stdout.isatty():
        print_results(results)
    # A short run says nothing about speed.
    return 0 if arguments.quick or all(result.passed is not False for result in results) else 1


def _measured(name: str, *, quick: bool, repeat: int) -> Iterator[Result]:
    """Returns the results of one benchmark. A benchmark that fails does not prevent the others."""
    try:
        yield from importlib.import_module(f"benchmarks.{name}").run(quick=quick, repeat=repeat)
    except Stuck as stuck:
        print(stuck, file=sys.stderr, flush=True)
        reason = str(stuck).partition("\n")[0]
        yield Result(
            benchmark=name,
            case="the rest",
            unit="",
            us=0.0,
            compared="not measured",
            passed=False,
            note=reason,
        )


def _heed_signals() -> None:
    """Makes signals also clean up what the benchmark has started: jobs, processes, namespaces."""

    def end(number: int, frame: FrameType | None) -> None:
        # Only once: a second signal must not interrupt the cleanup.
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        # Under nohup, SIGHUP stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


if __name__ == "__main__":
    sys.exit(main())
