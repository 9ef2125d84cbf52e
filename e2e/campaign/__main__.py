"""`python -m e2e.campaign --runs=100 --seed=1`: jobs with faults, one or several at a time; a line for each.

Every run is repeated by its seed, strategy and fault (`--seed=17 --runs=1`, and the same choice of strategies and
faults). Exit code 1 if one of them is wrong; what it left is kept.
"""

from __future__ import annotations

import argparse
import collections
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.campaign.faults import FAULTS, is_available
from e2e.campaign.runs import STRATEGIES, Checked, Run, check


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.campaign", description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next has the next")
    parser.add_argument("--minutes", type=float, default=0.0, help="begin no run after so long; 0: no limit")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--strategies", nargs="*", choices=STRATEGIES, default=list(STRATEGIES))
    parser.add_argument("--faults", nargs="*", choices=FAULTS, default=list(FAULTS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        faults = [name for name in arguments.faults if is_available(name, Path(folder))]
    if left_out := sorted(set(arguments.faults) - set(faults)):
        print(f"Skipped for lack of rights: {', '.join(left_out)}", flush=True)
    end = time.monotonic() + 60 * arguments.minutes if arguments.minutes else float("inf")
    outcomes: collections.Counter[tuple[str, str, str]] = collections.Counter()

    def one(seed: int) -> None:
        if time.monotonic() > end:
            return
        run = Run.draw(seed, strategies=arguments.strategies, faults=faults)
        outcomes[run.strategy, run.fault, _print_run(run)] += 1

    with ThreadPoolExecutor(arguments.parallel) as pool:
        list(pool.map(one, range(arguments.seed, arguments.seed + arguments.runs)))
    for (strategy, fault, outcome), count in sorted(outcomes.items()):
        print(f"{strategy:12} {fault:12} {outcome:10} {count}")
    wrong = sum(count for (_, _, outcome), count in outcomes.items() if outcome == "WRONG")
    print(f"{sum(outcomes.values())} runs, {wrong} wrong")
    return 1 if wrong else 0


def _print_run(run: Run) -> str:
    folder, began = Path(tempfile.mkdtemp(prefix=f"campaign-{run.seed}-")), time.monotonic()
    try:
        checked: Checked = check(run, folder)
    except Exception as error:  # noqa: BLE001 - a defect of a run does not end those that follow
        print(f"{run}: WRONG after {time.monotonic() - began:.0f} s, see {folder}\n{error}", flush=True)
        return "WRONG"
    shutil.rmtree(folder)
    seconds = time.monotonic() - began
    print(f"{run}: {checked.outcome.value} in {seconds:.0f} s ({', '.join(checked.events)})", flush=True)
    return checked.outcome.value


if __name__ == "__main__":
    sys.exit(main())
