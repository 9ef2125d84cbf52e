"""A parameter server with very many rows: memory per row, and the latency of pulls while it writes a checkpoint.

10⁷ rows of 16 numbers with Adagrad's sums (10⁶ with `--quick`, otherwise as many as `ELASTICDL_BENCHMARK_ROWS` says),
in the process that every job has. One worker pulls rows with ids from Zipf's law, batch after batch. Another one pushes
all the time, so rows are copied before they change while a checkpoint is written. Both phases are measured in the same
run, one after the other. Wall time needs an idle machine with two cores.

Failure modes
    Too little memory is reported before the server is filled. If a checkpoint is written before enough pulls were
    timed, another one is written, until there are enough.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from numpy.typing import NDArray

from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.our_server import TABLE, TOKEN, connect, push_rows
from benchmarks.processes import running, wait_until
from benchmarks.report import Result
from benchmarks.tables import zipf
from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.client.parameter_client import ParameterClient

NAME = "server_rows"
ROWS, QUICK_ROWS = 10_000_000, 1_000_000
# Values and Adagrad's sums, the id, the index (docs/decisions/0027-compiled-kernels.md).
ROW_BYTES = 2 * 4 * clicks.WIDTH + 8 + 5
# The last chunk of each bucket is not full.
_OVERHEAD = 1.1
_TIMES = 3.0
# Ids drawn for a pull and for a push. Duplicates are removed, so fewer are sent.
_DRAWN = 16_384
# Coprime to numbers of rows that are powers of ten.
_STRIDE = 7919
_PULLS = 500
_PAUSE_SECONDS = 0.002
# Besides the rows: copies of chunks that change while a checkpoint is written, and buffers of the file.
_MEMORY = 1.5
_PROGRAM = [sys.executable, "-m", "benchmarks.parameter_servers.our_server"]


@dataclass(kw_only=True)
class Pulls:
    """Seconds of pulls, without a checkpoint and while one is written."""

    usual: list[float] = field(default_factory=list)
    saving: list[float] = field(default_factory=list)
    save_seconds: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return _p99(self.saving) / _p99(self.usual)


def run(*, quick: bool, repeat: int) -> list[Result]:
    rows = int(os.environ.get("ELASTICDL_BENCHMARK_ROWS", 0)) or (QUICK_ROWS if quick else ROWS)
    needed, free = rows * ROW_BYTES * _MEMORY, psutil.virtual_memory().available
    if needed > free:
        note = f"{needed / 1e9:.0f} GB of memory are needed, {free / 1e9:.0f} GB are free"
        return [
            Result(benchmark=NAME, case=f"{rows:,} rows", unit="", us=0.0, compared="not measured", note=note)
        ]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        address = home / "address"
        with _server(home, 0) as empty:
            before = empty.memory_info().rss
            address.unlink()
        with _server(home, rows) as process:
            taken = process.memory_info().rss - before
            rounds = [_measure(address.read_text(), rows, home) for _ in range(repeat)]
    return [_memory(rows, taken), _pulls(rows, rounds)]


@contextmanager
def _server(home: Path, rows: int) -> Iterator[psutil.Process]:
    address = home / "address"
    # At least one row is pushed, so that everything that the first push allocates exists.
    command = [*_PROGRAM, f"--address={address}", f"--rows={max(1, rows)}"]
    with running(command, log=home / "log") as process:
        wait_until(address.exists, "a server with rows serves", seconds=1800.0)
        yield psutil.Process(process.pid)


def _memory(rows: int, taken: int) -> Result:
    each = taken / rows
    return Result(
        benchmark=NAME,
        case=f"memory of a row, {rows:,} of {clicks.WIDTH} numbers with Adagrad",
        unit="bytes",
        us=each,
        peer=ROW_BYTES,
        compared=f"{each / ROW_BYTES:.3g}×",
        target=f"≤ {_OVERHEAD:g}×",
        passed=each <= _OVERHEAD * ROW_BYTES,
        note=f"{taken / 1e6:,.0f} MB more than a server with one row; the peer: what the documentation says",
    )


def _pulls(rows: int, rounds: list[Pulls]) -> Result:
    ratio = statistics.median(each.ratio for each in rounds)
    medians = [statistics.median(_median(getattr(each, phase)) for each in rounds) * 1e3 for phase in _PHASES]
    return Result(
        benchmark=NAME,
        case=f"p99 of a pull while {rows:,} rows are saved, against the usual",
        unit="ms",
        us=statistics.median(_p99(each.saving) for each in rounds) * 1e3,
        peer=statistics.median(_p99(each.usual) for each in rounds) * 1e3,
        compared=f"{ratio:.3g}×",
        target=f"< {_TIMES:g}×",
        passed=ratio < _TIMES,
        note=f"pulls of {_DRAWN:,} drawn ids; medians {medians[1]:.2f} ms and {medians[0]:.2f} ms; a checkpoint takes "
        f"{statistics.median(s for each in rounds for s in each.save_seconds):.2f} s; "
        f"the longest pull {max(max(each.saving) for each in rounds) * 1e3:.1f} ms",
    )


_PHASES = ("usual", "saving")


def _measure(address: str, rows: int, home: Path) -> Pulls:
    client = connect(address, worker="worker-1", rule="adagrad")
    found = Pulls()
    draw = _Draw(rows, seed=3)
    with _pushing(address, rows, home):
        for _ in range(_PULLS // 10):
            _pull(client, draw)
        found.usual = [_pull(client, draw) for _ in range(_PULLS)]
        while len(found.saving) < _PULLS:
            saving = threading.Thread(target=lambda: found.save_seconds.append(_save(address, home)))
            saving.start()
            while saving.is_alive():
                found.saving.append(_pull(client, draw))
            saving.join()
    client.close()
    return found


@contextmanager
def _pushing(address: str, rows: int, home: Path) -> Iterator[None]:
    """Another worker, in its own process, which pushes all the time."""
    begun = home / "pushing"
    command = [sys.executable, "-m", "benchmarks.server_rows", address, str(rows), str(begun)]
    with running(command, log=home / "push-log"):
        wait_until(begun.exists, "a worker pushes")
        yield
    begun.unlink()


def _push(address: str, rows: int, begun: Path) -> None:
    client = connect(address, worker=f"worker-{os.getpid()}", rule="adagrad")
    draw = _Draw(rows, seed=4)
    while True:
        push_rows(client, draw())
        begun.touch()
        time.sleep(_PAUSE_SECONDS)


class _Draw:
    """The distinct ids of a batch: few are frequent, most are rare, as in the other benchmarks."""

    def __init__(self, rows: int, *, seed: int) -> None:
        self._rows = rows
        self._chance = np.random.default_rng(seed)

    def __call__(self) -> NDArray[np.int64]:
        # Spreads frequent ids over the range.
        places = zipf(self._chance, self._rows, _DRAWN) * _STRIDE % self._rows
        ids: NDArray[np.int64] = np.unique(places)
        return ids


def _pull(client: ParameterClient, draw: _Draw) -> float:
    ids = draw()
    began = time.perf_counter()
    client.pull_rows({TABLE.name: ids})
    seconds = time.perf_counter() - began
    time.sleep(_PAUSE_SECONDS)
    return seconds


def _save(address: str, home: Path) -> float:
    return asyncio.run(_save_all(address, home))


async def _save_all(address: str, home: Path) -> float:
    """Saves as a master does: snapshot, write, release."""
    servers = Coordinator(TOKEN)
    began = time.monotonic()
    try:
        await servers.freeze_all({0: address}, "saved", 1, flush=True)
        await servers.save_all({0: address}, "saved", home)
        await servers.release_all({0: address}, "saved")
    finally:
        await servers.close()
    return time.monotonic() - began


def _p99(seconds: list[float]) -> float:
    return float(np.quantile(seconds, 0.99))


def _median(seconds: list[float]) -> float:
    return statistics.median(seconds)


if __name__ == "__main__":
    _push(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
