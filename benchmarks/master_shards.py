"""Shards handed out per second: fetched, and reported done, by 1 and by 8 processes at once.

Both masters serve 200,000 shards over gRPC on this machine, ours with its journal on disk and the token
checked. Our clients take several shards in a call, and report each of them for itself; DLRover's protocol
knows one a call. What one shard a call costs us is measured too, for comparison.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.masters import dlrover_master, dlrover_python, our_master
from benchmarks.processes import DEADLINE, ROOT, Stuck, tail
from benchmarks.report import Result, at_least

NAME = "master_shards"
SHARDS = 200_000
SHARD_SIZE = 64
# A worker that leases this many has them done in seconds where shards are so short that this speed matters.
SHARDS_A_CALL = 32
CLIENTS = (1, 8)


@dataclass(frozen=True, kw_only=True)
class Measured:
    per_second: float
    p50: float


def run(*, quick: bool, repeat: int) -> list[Result]:
    seconds = 1.0 if quick else 4.0
    found: dict[tuple[str, int], list[Measured]] = {}
    for _ in range(repeat):
        for clients in CLIENTS:
            found.setdefault(("peer", clients), []).append(_theirs(clients, seconds))
            found.setdefault(("many", clients), []).append(_ours(clients, SHARDS_A_CALL, seconds))
            found.setdefault(("one", clients), []).append(_ours(clients, 1, seconds))
    results = []
    for clients in CLIENTS:
        peer = _median(found["peer", clients])
        for what, at_once in (("many", SHARDS_A_CALL), ("one", 1)):
            ours = _median(found[what, clients])
            result = Result(
                benchmark=NAME,
                case=f"{clients} client{'s' if clients > 1 else ''}, {at_once} a call",
                unit="shards/s",
                us=ours.per_second,
                peer=peer.per_second,
                note=f"p50 of a lease and its report: {ours.p50 * 1e3:.2f} ms, peer {peer.p50 * 1e3:.2f} ms",
            )
            results.append(at_least(result, 10.0, target=clients == max(CLIENTS) and what == "many"))
    return results


def _median(measured: list[Measured]) -> Measured:
    return Measured(
        per_second=statistics.median(m.per_second for m in measured),
        p50=statistics.median(m.p50 for m in measured),
    )


def _ours(clients: int, at_once: int, seconds: float) -> Measured:
    with (
        tempfile.TemporaryDirectory() as home,
        our_master(Path(home), workers=clients, shard_size=SHARD_SIZE) as master,
    ):
        token = str(master.folder / "token")
        # Large enough for any speed; the size makes no difference to our master (see master_memory).
        size = str(SHARDS * SHARD_SIZE)
        return _drive(
            [
                [
                    *(sys.executable, "-m", "benchmarks.shard_client", master.address, token),
                    *(f"worker-{number}", size, str(at_once), str(seconds)),
                ]
                for number in range(clients)
            ],
            Path(home) / "clients.log",
        )


def _theirs(clients: int, seconds: float) -> Measured:
    script = str(Path(__file__).with_name("dlrover_client.py"))
    with tempfile.TemporaryDirectory() as home, dlrover_master(Path(home)) as master:
        return _drive(
            [
                [str(dlrover_python()), script, master.address, str(number), str(SHARDS), str(seconds)]
                for number in range(clients)
            ],
            Path(home) / "clients.log",
        )


def _drive(commands: list[list[str]], log: Path) -> Measured:
    """Lets all clients begin together when all are ready."""
    with log.open("ab") as errors:
        processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
            )
            for command in commands
        ]
    try:
        for process in processes:
            assert process.stdout is not None
            # Libraries print greetings too.
            if not any(line == "ready\n" for line in iter(process.stdout.readline, "")):
                raise Stuck(f"a client ended before it began:\n{tail(log)}")
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        found = []
        for process in processes:
            output, _ = process.communicate(timeout=DEADLINE)
            if process.returncode:
                raise Stuck(f"a client failed:\n{tail(log)}")
            found.append(json.loads(output.splitlines()[-1]))
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return Measured(
        per_second=sum(each["shards"] / each["seconds"] for each in found),
        p50=statistics.median(each["p50"] for each in found),
    )
