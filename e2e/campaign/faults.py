"""What happens to the jobs of the campaign: each fault strikes a few times, at moments and places that a seed decides.

A fault strikes while the job trains. `environment` and `prefix` prepare the job for it. Where it may end the job,
`explanations` has words of which the job then has to say one.
"""

from __future__ import annotations

import contextlib
import random
import signal
import time
from pathlib import Path
from typing import Any

import psutil

from e2e.campaign.clock import ShiftedClock
from e2e.campaign.network import Network, listening_ports
from e2e.conftest import Job
from e2e.test_full_disk import Disk

_STRIKES = 3
_DISK_KILOBYTES = 8192


class Fault:
    """The job is left alone."""

    # Of these words at least one is in what the command prints, if the fault ends the job.
    explanations: tuple[str, ...] = ()

    def __init__(self, folder: Path, source: random.Random) -> None:
        self.folder = folder
        self.source = source
        self.environment: dict[str, str] = {}
        self.prefix: tuple[str, ...] = ()
        self.home = folder / "home"
        self.events: list[str] = []

    def run(self, job: Job) -> None:
        """Strikes while the job is under way."""
        for _ in range(_STRIKES):
            time.sleep(self.source.uniform(0.3, 2.0))
            if job.process.poll() is not None:
                return
            # What was chosen may have ended meanwhile.
            with contextlib.suppress(psutil.Error, FileNotFoundError, ProcessLookupError):
                self.strike(job)

    def strike(self, job: Job) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Leaves nothing behind."""

    def pause(self, least: float, most: float) -> None:
        time.sleep(self.source.uniform(least, most))

    def choose_node(self, job: Job, *, roles: tuple[str, ...] = ()) -> tuple[str, psutil.Process]:
        processes = {
            name: process
            for name, process in sorted(job.processes().items())
            if not roles or name.rsplit("-", 1)[0] in roles
        }
        if not processes:
            raise FileNotFoundError("no such node runs")
        name = self.source.choice(list(processes))
        return name, processes[name]


class Kills(Fault):
    """SIGKILL to any node."""

    def strike(self, job: Job) -> None:
        name, process = self.choose_node(job)
        self.events.append(f"kill {name}")
        process.send_signal(signal.SIGKILL)


class Zombies(Fault):
    """A node is suspended for longer than its timeout, half of the time with the supervisor, so that no one kills it.

    It goes on, with all that it was about to send, when others have taken its place.
    """

    def strike(self, job: Job) -> None:
        name, process = self.choose_node(job)
        supervisor = _find_supervisor(job) if self.source.random() < 0.5 else None
        self.events.append(f"suspend {name}{' and the supervisor' if supervisor else ''}")
        suspended = [process, *([supervisor] if supervisor else [])]
        try:
            for each in reversed(suspended):
                each.suspend()
            self.pause(1.0, 10.0)
        finally:
            for each in suspended:
                with contextlib.suppress(psutil.Error):
                    each.resume()
                    self.pause(0.0, 1.5)


def _find_supervisor(job: Job) -> psutil.Process | None:
    for child in psutil.Process(job.process.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "platforms.local.supervisor" in " ".join(child.cmdline()):
                return child
    return None


class Partitions(Fault):
    """Packets to or from the master or a server do not arrive for seconds, or a part of all packets is lost."""

    def __init__(self, folder: Path, source: random.Random) -> None:
        super().__init__(folder, source)
        self._network = Network()
        self.prefix = self._network.prefix

    def strike(self, job: Job) -> None:
        self._network.enter(job.process.pid)
        name, process = self.choose_node(job, roles=("master", "ps"))
        ports = listening_ports(process.pid)
        kind = self.source.choice(("towards", "from", "both", "loss"))
        self.events.append(f"partition {name} {kind}")
        try:
            for port in ports if kind != "loss" else ():
                if kind in ("towards", "both"):
                    self._network.drop_towards(port)
                if kind in ("from", "both"):
                    self._network.drop_from(port)
            if kind == "loss":
                self._network.lose(self.source.uniform(0.01, 0.15))
            self.pause(0.5, 8.0)
        finally:
            if job.process.poll() is None:
                self._network.heal()


class ClockJumps(Fault):
    """The wall clock of all processes jumps, backwards too."""

    def __init__(self, folder: Path, source: random.Random) -> None:
        super().__init__(folder, source)
        self._clock = ShiftedClock(folder)
        self.environment = self._clock.environment

    def strike(self, job: Job) -> None:
        seconds = self.source.choice((-86_400, -3600, -30, 30, 3600, 86_400))
        self.events.append(f"set the clock to {seconds:+d} s")
        self._clock.shift(seconds)
        if self.source.random() < 0.5:
            name, process = self.choose_node(job)
            self.events.append(f"kill {name}")
            process.send_signal(signal.SIGKILL)


class Replays(Kills):
    """Workers send pushes and calls to the master twice, the second time late; besides, nodes are killed."""

    def __init__(self, folder: Path, source: random.Random) -> None:
        super().__init__(folder, source)
        self.environment = {"ELASTICDL_TEST_REPLAYED": "0.1"}


class DamagedJournals(Fault):
    """The journal's end is removed, torn or changed while the master is suspended, which is then killed."""

    explanations = ("journal",)

    def run(self, job: Job) -> None:
        self.pause(0.5, 4.0)
        with contextlib.suppress(psutil.Error, FileNotFoundError):
            self.strike(job)

    def strike(self, job: Job) -> None:
        _, master = self.choose_node(job, roles=("master",))
        master.suspend()
        journals = sorted(
            (job.folder / "journal").glob("journal-*.log"), key=lambda path: path.stat().st_mtime
        )
        if journals:
            data = journals[-1].read_bytes()
            kind = self.source.choice(("lines", "torn", "changed"))
            self.events.append(f"damage the journal: {kind}")
            journals[-1].write_bytes(self._damage(data, kind))
        master.kill()

    def _damage(self, data: bytes, kind: str) -> bytes:
        lines = data.splitlines(keepends=True)
        last = min(self.source.randint(1, 60), len(lines) - 1)
        if kind == "lines":
            return b"".join(lines[: len(lines) - last])
        if kind == "torn":
            return data[: len(data) - self.source.randint(1, max(len(b"".join(lines[-last:])), 1))]
        changed = bytearray(data)
        changed[-self.source.randint(1, max(len(b"".join(lines[-last:])), 1))] ^= 1 << self.source.randrange(
            8
        )
        return bytes(changed)


class FullDisks(Fault):
    """The disk of the job's folder fills up for some seconds."""

    explanations = ("no space left", "disk is full", "Make room", "cannot be written", "Cannot write")

    def __init__(self, folder: Path, source: random.Random) -> None:
        super().__init__(folder, source)
        self._disk = Disk(folder / "disk", _DISK_KILOBYTES)
        self.prefix = self._disk.prefix
        self.home = folder / "disk" / "home"
        if self._disk.mounted:
            self.home.mkdir()

    @classmethod
    def is_available(cls, folder: Path) -> bool:
        """The tests look into the job's folder, so the disk has to be mounted for them too."""
        disk = Disk(folder / "probe", 64)
        if disk.mounted:
            disk.remove()
        return disk.mounted

    def strike(self, job: Job) -> None:
        self.events.append("fill the disk")
        filling = self.folder / "disk" / "filling"
        try:
            # What the job writes meanwhile leaves less than there was, which is as good.
            with contextlib.suppress(OSError):
                self._disk.fill(job.process.pid)
            self.pause(0.2, 4.0)
        finally:
            filling.unlink(missing_ok=True)

    def close(self) -> None:
        self._disk.remove()


FAULTS: dict[str, type[Fault]] = {
    "kills": Kills,
    "zombies": Zombies,
    "partitions": Partitions,
    "clock": ClockJumps,
    "replays": Replays,
    "journal": DamagedJournals,
    "disk": FullDisks,
}


def is_available(name: str, folder: Path) -> Any:
    """Whether this machine allows to cause the fault: root, or the right to make namespaces."""
    if name == "partitions":
        return Network.is_available()
    if name == "disk":
        return FullDisks.is_available(folder)
    return True
