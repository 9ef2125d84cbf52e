"""Shards per second: leased and reported done, by 1 and by 8 processes at once.

Both masters serve over gRPC on this machine, ours with its journal on disk and the token checked. Programs with our
`elasticai_api` fetch and report one shard per call of the package, as programs with DLRover's client do; the package
prefetches several at once and batches reports, and the ledger accounts for each shard separately. Also measured: the
calls of our own workers, with 32 shards and with one, and programs with the public `elasticai_api`, which calls the
master for each shard.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.masters import dlrover_master, dlrover_python, our_master, our_program_master, public_package
from benchmarks.processes import DEADLINE, ROOT, Stuck, tail
from benchmarks.report import Result, at_least

NAME = "master_shards"
SHARDS = 200_000
SHARD_SIZE = 64
# With shards so short that this speed matters, a worker completes this many in seconds.
SHARDS_A_CALL = 32
CLIENTS = (1, 8)
_TARGETS = {
    ("elasticai_api, one a call", 1): 3.0,
    ("elasticai_api, one a call", 8): 3.0,
    (f"{SHARDS_A_CALL} a call", 8): 10.0,
    # On two cores, the package's own processor time allows 3 and 2 (docs/decisions/0052-unary-http2-server.md).
    ("the public package, one a call", 1): 1.0,
    ("the public package, one a call", 8): 1.0,
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    per_second: float
    p50: float


def run(*, quick: bool, repeat: int) -> list[Result]:
    seconds = 1.0 if quick else 4.0
    public = public_package()
    ways: dict[str, Callable[[int], Measured]] = {
        "peer": lambda clients: _theirs(clients, seconds),
        "elasticai_api, one a call": lambda clients: _programs(ROOT, clients, seconds),
        f"{SHARDS_A_CALL} a call": lambda clients: _ours(clients, SHARDS_A_CALL, seconds),
        "1 a call": lambda clients: _ours(clients, 1, seconds),
        "the public package, one a call": lambda clients: _programs(public, clients, seconds),
    }
    found: dict[tuple[str, int], list[Measured]] = {}
    for _ in range(repeat):
        for clients in CLIENTS:
            for name, measure in ways.items():
                found.setdefault((name, clients), []).append(measure(clients))
    results = []
    for clients in CLIENTS:
        peer = _median(found.pop(("peer", clients)))
        for name in (name for name in ways if name != "peer"):
            ours = _median(found[name, clients])
            result = Result(
                benchmark=NAME,
                case=f"{clients} client{'s' if clients > 1 else ''}, {name}",
                unit="shards/s",
                us=ours.per_second,
                peer=peer.per_second,
                note=f"p50 of a lease and its report: {ours.p50 * 1e3:.2f} ms, peer {peer.p50 * 1e3:.2f} ms",
            )
            target = _TARGETS.get((name, clients))
            results.append(at_least(result, target or 1.0, target=target is not None))
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


def _programs(package: Path, clients: int, seconds: float) -> Measured:
    """Programs with a package named `elasticai_api`, ours or the public one, in this folder."""
    script = str(Path(__file__).with_name("program_client.py"))
    with tempfile.TemporaryDirectory() as home, our_program_master(Path(home), workers=clients) as master:
        environment = {"PYTHONPATH": str(package), "WORKER_TYPE": "worker", "WORKER_NUM": str(clients)}
        if package == ROOT:
            environment |= {
                "MASTER_ADDR": master.address,
                "ELASTICDL_TOKEN_FILE": str(master.folder / "token"),
            }
        else:
            environment |= {"DLROVER_MASTER_ADDR": master.public_address}
        # Our master supports any size (see master_memory).
        size = str(1000 * SHARDS * SHARD_SIZE)
        command = [sys.executable, script, size, str(SHARD_SIZE), str(seconds)]
        return _drive(
            [command] * clients,
            Path(home) / "clients.log",
            environments=[{**environment, "WORKER_ID": str(number)} for number in range(clients)],
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


def _drive(
    commands: list[list[str]], log: Path, environments: Sequence[Mapping[str, str]] | None = None
) -> Measured:
    """Starts all clients at the same time when all are ready."""
    given: Sequence[Mapping[str, str]] = environments or [{} for _ in commands]
    with log.open("ab") as errors:
        processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                env={**os.environ, **more},
            )
            for command, more in zip(commands, given, strict=True)
        ]
    try:
        for process in processes:
            assert process.stdout is not None
            # Libraries print other lines, too.
            if not any(line == "ready\n" for line in iter(process.stdout.readline, "")):
                raise Stuck(f"a client ended before it started:\n{tail(log)}")
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
