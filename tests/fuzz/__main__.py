"""Seeded fuzzers: `python -m tests.fuzz TARGET --seed=N --rounds=N`. Exit code 1 and the input, if one finds something.

A target gets a source of random numbers and does one round. An error of the kind that is meant for people is a correct
answer to nonsense; any other one is a finding, and so is a server that does not answer a good caller afterwards.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import traceback

from tests.fuzz import files, http2_frames, master_ports, server_calls, server_ports

TARGETS = {
    **files.TARGETS,
    **server_ports.TARGETS,
    **server_calls.TARGETS,
    **master_ports.TARGETS,
    **http2_frames.TARGETS,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", default=[], metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--rounds", type=int, default=100_000)
    arguments = parser.parse_args()
    # Whatever is rejected is logged, which is right, and not needed here.
    logging.disable(logging.CRITICAL)
    findings = 0
    for name in arguments.targets or TARGETS:
        began = time.monotonic()
        with TARGETS[name]() as one_round:
            for number in range(arguments.rounds):
                # Each round can be repeated without those before it.
                seed = f"{arguments.seed}/{number}"
                try:
                    one_round(random.Random(seed))
                except Exception:  # noqa: BLE001 - what it is looking for
                    findings += 1
                    print(f"{name}: finding in round {number} of --seed={arguments.seed}", flush=True)
                    traceback.print_exc()
                    if findings >= 10:
                        return 1
        print(f"{name}: {arguments.rounds:,} rounds in {time.monotonic() - began:.1f} s", flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
