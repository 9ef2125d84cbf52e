"""Docker's engine for one test: the one of the machine, or, where only its program is installed, one of the test's own.

Its containers have no network: what an image is built of is there already.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster.commands import succeeds
from e2e.conftest import wait_until


@contextlib.contextmanager
def docker_engine() -> Iterator[dict[str, str]]:
    """The variables by which `docker` finds it."""
    if succeeds("docker", "version"):
        yield {}
        return
    assert shutil.which("dockerd"), "docker's engine is not installed"
    # The folders of tests have names that are too long for the sockets that it makes.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, _engine(Path(folder)) as address:
        yield {"DOCKER_HOST": address}


@contextlib.contextmanager
def _engine(folder: Path) -> Iterator[str]:
    """One of the test's own, by its address. `folder` is for what it keeps."""
    address = f"unix://{folder}/socket"
    places = (f"--data-root={folder}/data", f"--exec-root={folder}/run", f"--pidfile={folder}/pid")
    with (folder / "log").open("wb") as log:
        engine = subprocess.Popen(
            ["dockerd", f"--host={address}", *places, "--bridge=none", "--iptables=false"],
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(
            lambda: engine.poll() is not None or succeeds("docker", f"--host={address}", "version"),
            "docker's engine answers",
        )
        assert engine.poll() is None, (folder / "log").read_text()
        yield address
    finally:
        engine.terminate()
        engine.wait()
        # Its mounts would keep the folder from being removed.
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if (point := line.split()[1]).startswith(f"{folder}/"):
                succeeds("umount", "--lazy", point)
