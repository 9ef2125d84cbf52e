"""`python -m benchmarks [NAME ...]`: measures, prints what was found, and ends with 1 if a target was
missed.
"""

from __future__ import annotations

import argparse
import compileall
import importlib
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from benchmarks.processes import ROOT
from benchmarks.report import Result, print_results, write_json

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
)
# Only where it is asked for: there has to be a cluster.
MORE_NAMES = ("kubernetes", "elastic_cluster", "paddle_cluster")


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
        "--quick", action="store_true", help="once and short: shows that it runs, not how fast"
    )
    parser.add_argument(
        "--repeat", type=int, default=0, help="repetitions of each, of which the median counts (5)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in (*NAMES, *MORE_NAMES)]
    if unknown:
        parser.error(
            f"there is no benchmark {', '.join(unknown)}; there are {', '.join((*NAMES, *MORE_NAMES))}"
        )
    repeat = arguments.repeat or (1 if arguments.quick else 5)
    # As in an installed package, and as in the peers: else every process would compile our modules again.
    for package in ("elasticai_api", "elasticdl", "benchmarks"):
        compileall.compile_dir(str(ROOT / package), quiet=1)
    # What others have written, our environments install without compiling it: the first process that needs it does.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    results: list[Result] = []
    for name in arguments.names or NAMES:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        results += importlib.import_module(f"benchmarks.{name}").run(quick=arguments.quick, repeat=repeat)
    print_results(results)
    if arguments.json is not None:
        write_json(arguments.json, results, quick=arguments.quick)
    # A short run says nothing about speed.
    return 0 if arguments.quick or all(result.passed is not False for result in results) else 1


def _heed_signals() -> None:
    """Makes signals also end what the benchmark has started: jobs, processes, namespaces."""

    def end(number: int, frame: FrameType | None) -> None:
        # Once: what is under way then is the end.
        signal.signal(number, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        # Under nohup the latter is to be ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, end)


if __name__ == "__main__":
    sys.exit(main())
