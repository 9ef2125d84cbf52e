"""The requirements of jobs on this machine: a place for their files, memory, ports, and limits on processes.

The figures are those of a small job: two workers, a parameter server and a master. A job that fits has room for
nothing else on a machine with a warning.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import sys
import tempfile
from pathlib import Path

from elasticdl.doctor.finding import Finding, Level
from elasticdl.errors import UserError

_GIB = 1024**3
_MIB = 1024**2
# A worker with TensorFlow takes some 500 MB, with PyTorch 300 MB.
_LEAST_MEMORY, _ENOUGH_MEMORY = 512 * _MIB, 2 * _GIB
# A journal and logs are small; checkpoints are those of the model.
_LEAST_DISK, _ENOUGH_DISK = 100 * _MIB, 2 * _GIB
# Workers of this machine pass rows to parameter servers through it.
_ENOUGH_SHARED = 64 * _MIB
_LEAST_FILES, _LEAST_PROCESSES = 256, 128
_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")
_SHARED = Path("/dev/shm")


def check_home(home: Path) -> list[Finding]:
    """The folder of the jobs: whether it can be written, is private, and has room."""
    subject = "home of jobs"
    fix = f'mkdir -p "{home}" && chown -R "$USER" "{home}" && chmod -R u+rwX "{home}"'
    existing = next(folder for folder in (home, *home.parents) if folder.exists())
    try:
        # A job does the same when it begins; the first job makes the folder itself.
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=existing):
            pass
    except OSError as error:
        text = f"{home} cannot be written: {error.strerror}."
        fix = f"{fix}, or set ELASTICDL_HOME to another folder"
        return [Finding(subject=subject, level=Level.ERROR, text=text, fix=fix)]
    found = [Finding(subject=subject, level=Level.OK, text=f"{home} can be written")]
    jobs = home / "jobs"
    if jobs.exists() and jobs.stat().st_mode & 0o077:
        found = [
            Finding(
                subject=subject,
                level=Level.WARNING,
                text=f"Other users may look into {jobs}, where the tokens of jobs are.",
                fix=f'chmod 700 "{jobs}"',
            )
        ]
    return [*found, check_disk(existing)]


def check_disk(folder: Path, *, enough: int = _ENOUGH_DISK, least: int = _LEAST_DISK) -> Finding:
    free = shutil.disk_usage(folder).free
    level = Level.OK if free >= enough else Level.WARNING if free >= least else Level.ERROR
    return Finding(
        subject="disk",
        level=level,
        text=f"{_size(free)} free in {folder}",
        fix=""
        if level is Level.OK
        else "elasticdl jobs delete --older_than=7d, or set ELASTICDL_HOME to another disk",
    )


def check_memory(
    *,
    meminfo: Path = _MEMINFO,
    cgroup: Path = _CGROUP,
    enough: int = _ENOUGH_MEMORY,
    least: int = _LEAST_MEMORY,
) -> Finding:
    """Checks the available memory, within the limit of a container."""
    subject = "memory"
    available = _available_memory(meminfo, cgroup)
    if available is None:
        return Finding(
            subject=subject, level=Level.ABSENT, text="This system does not tell how much is free."
        )
    level = Level.OK if available >= enough else Level.WARNING if available >= least else Level.ERROR
    fix = "ps aux --sort=-rss | head (shows what uses it); a container needs a larger --memory"
    return Finding(
        subject=subject,
        level=level,
        text=f"{_size(available)} available",
        fix="" if level is Level.OK else fix,
    )


def check_shared_memory(folder: Path = _SHARED, *, enough: int = _ENOUGH_SHARED) -> Finding:
    subject = "shared memory"
    if not folder.is_dir():
        return Finding(subject=subject, level=Level.ABSENT, text=f"{folder} is not there; sockets are used.")
    free = shutil.disk_usage(folder).free
    is_enough = free >= enough and os.access(folder, os.W_OK)
    return Finding(
        subject=subject,
        level=Level.OK if is_enough else Level.WARNING,
        text=f"{_size(free)} free in {folder}" if is_enough else f"only {_size(free)} to use in {folder}",
        fix="" if is_enough else f"mount -o remount,size=1g {folder}; docker run --shm-size=1g",
    )


def check_ports() -> list[Finding]:
    """A master listens on two ports of the loopback interface, and processes talk over a socket in a folder."""
    from elasticdl.catalog.local.preflight import reserve_port

    found = []
    try:
        with reserve_port(0) as first, reserve_port(0) as second:
            text = f"127.0.0.1 has free ones ({first.number}, {second.number})"
            found.append(Finding(subject="ports", level=Level.OK, text=text))
    except UserError as error:
        found.append(
            Finding(
                subject="ports",
                level=Level.ERROR,
                text=error.message,
                fix="ss -tanp (shows what uses them); ip link set lo up (if the loopback interface is down)",
            )
        )
    try:
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(Path(folder) / "s"))
    except OSError as error:
        found.append(
            Finding(
                subject="sockets",
                level=Level.ERROR,
                text=f"No Unix socket can be made in {tempfile.gettempdir()}: {error.strerror}.",
                fix="export TMPDIR=/a/folder/of/a/local/disk",
            )
        )
    return found


def check_limits() -> Finding:
    """Open files and processes of this user."""
    subject = "limits"
    limits = (
        ("open files", resource.RLIMIT_NOFILE, _LEAST_FILES, "ulimit -n 4096"),
        ("processes", getattr(resource, "RLIMIT_NPROC", None), _LEAST_PROCESSES, "ulimit -u 4096"),
    )
    low, fixes = [], []
    for name, number, least, fix in limits:
        limit = resource.RLIM_INFINITY if number is None else resource.getrlimit(number)[0]
        if limit != resource.RLIM_INFINITY and limit < least:
            low.append(f"{limit} {name}")
            fixes.append(fix)
    if not low:
        return Finding(subject=subject, level=Level.OK, text="open files and processes suffice")
    return Finding(
        subject=subject,
        level=Level.ERROR,
        text=f"Only {' and '.join(low)} are allowed; a job needs more.",
        fix=" && ".join(fixes),
    )


def check_system(platform: str = sys.platform) -> Finding:
    if platform.startswith("linux"):
        return Finding(subject="system", level=Level.OK, text=f"{platform}, {_cores()} cores")
    return Finding(
        subject="system",
        level=Level.WARNING,
        text=f"{platform}: a program that starts a session of its own may outlive its job (docs/failures.md).",
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _available_memory(meminfo: Path, cgroup: Path) -> int | None:
    values = []
    try:
        fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
        values.append(int(fields["MemAvailable"].split()[0]) * 1024)
    except (OSError, KeyError, ValueError):
        pass
    for limit, used in (
        (cgroup / "memory.max", cgroup / "memory.current"),
        (cgroup / "memory" / "memory.limit_in_bytes", cgroup / "memory" / "memory.usage_in_bytes"),
    ):
        try:
            # "max" is no number: there is no limit then.
            values.append(max(int(limit.read_text()) - int(used.read_text()), 0))
        except (OSError, ValueError):
            continue
    return min(values, default=None)


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count / _MIB:.0f} MiB"
