"""The time to save a checkpoint of 10⁷ rows of which 1 % have changed: an increment against a full checkpoint.

With their sums of squares, by the calls of a job's master, until the file is on the disk. The changed rows are random,
which is the worst case: the more they are together, the fewer chunks have to be examined. Each round writes both, the
increment on top of the full one.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks.parameter_servers import clicks
from benchmarks.parameter_servers.our_server import TOKEN, connect, push_rows
from benchmarks.processes import running, wait_until
from benchmarks.report import Result
from elasticdl.ps.client.coordinator import Coordinator
from elasticdl.ps.client.parameter_client import ParameterClient

_SHARE = 0.01
# Target, relative to the time of a full checkpoint.
_AT_MOST = 0.25
_PROGRAM = [sys.executable, "-m", "benchmarks.parameter_servers.our_server"]


@dataclass(frozen=True, kw_only=True)
class Saved:
    seconds: float
    # Of processor time.
    work: float
    bytes: int


def measure(benchmark: str, sizes: clicks.Sizes, *, rounds: int) -> Result:
    rounds_found: list[tuple[Saved, Saved]] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        address = home / "address"
        command = [*_PROGRAM, f"--address={address}", f"--rows={sizes.ids}"]
        with running(command, log=home / "log") as process:
            wait_until(address.exists, "a server with rows serves")
            client = connect(address.read_text(), worker="worker-1", rule="adagrad")
            saving = _Saving(client, address.read_text(), psutil.Process(process.pid), home, sizes.ids)
            for _ in range(rounds):
                whole = saving.save()
                rounds_found.append((saving.save(since=saving.last), whole))
            client.close()
    return _summary(benchmark, sizes, rounds_found)


def _summary(benchmark: str, sizes: clicks.Sizes, found: list[tuple[Saved, Saved]]) -> Result:
    seconds, work, size = (
        statistics.median(
            getattr(changes, what) / max(getattr(whole, what), 1e-9) for changes, whole in found
        )
        for what in ("seconds", "work", "bytes")
    )
    changes, whole = found[-1]
    return Result(
        benchmark=benchmark,
        case=f"saving 1 % of {sizes.ids:,} rows, against all",
        unit="s",
        us=statistics.median(changes.seconds for changes, _ in found),
        peer=statistics.median(whole.seconds for _, whole in found),
        compared=f"{seconds:.3g}×",
        target=f"≤ {_AT_MOST:g}×",
        passed=seconds <= _AT_MOST,
        note=f"the median of {len(found)} rounds' ratios; processor time {work:.3g}×, bytes {size:.3g}×: "
        f"{changes.work:.2g} s and {changes.bytes / 1e6:,.0f} MB, all {whole.work:.2g} s and "
        f"{whole.bytes / 1e6:,.0f} MB",
    )


class _Saving:
    """A server, and the calls of its master."""

    def __init__(
        self, client: ParameterClient, address: str, process: psutil.Process, folder: Path, rows: int
    ) -> None:
        self._client = client
        self._servers = {0: address}
        self._process = process
        self._folder = folder
        self._rows = rows
        self._chance = np.random.default_rng(7)
        self._barriers = 0

    @property
    def last(self) -> str:
        """The copy that was saved last."""
        return f"barrier-{self._barriers}"

    def save(self, *, since: str = "") -> Saved:
        """After some training; only what has changed since a copy, if one is named."""
        changed = self._chance.choice(self._rows, int(self._rows * _SHARE), replace=False)
        push_rows(self._client, np.sort(changed).astype(np.int64))
        self._barriers += 1
        return asyncio.run(self._save(since))

    async def _save(self, since: str) -> Saved:
        servers = Coordinator(TOKEN)
        try:
            await servers.freeze_all(self._servers, self.last, 1, flush=True)
            work, began = self._work(), time.monotonic()
            (file,), complete = await servers.save_all(self._servers, self.last, self._folder, since=since)
            seconds, work = time.monotonic() - began, self._work() - work
            await servers.release_all(self._servers, self.last)
        finally:
            await servers.close()
        assert complete is not bool(since), "the server has not written the checkpoint"
        return Saved(seconds=seconds, work=work, bytes=file.bytes)

    def _work(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)
