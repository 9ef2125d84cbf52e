"""Docker's engine for one test: the one of the machine, or, where only its program is installed, one of the test's own.

Its containers have no network: what an image is built of is there already.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from e2e.cluster.commands import succeeds
from e2e.conftest import wait_until


@contextlib.contextmanager
def docker_engine(folder: Path) -> Iterator[dict[str, str]]:
    """The variables by which `docker` finds it. `folder` is for what it keeps."""
    if succeeds("docker", "version"):
        yield {}
        return
    assert shutil.which("dockerd"), "docker's engine is not installed"
    folder.mkdir()
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
        yield {"DOCKER_HOST": address}
    finally:
        engine.terminate()
        engine.wait()
        # Its mounts would keep the folder from being removed.
        for line in reversed(Path("/proc/mounts").read_text().splitlines()):
            if (point := line.split()[1]).startswith(f"{folder}/"):
                succeeds("umount", "--lazy", point)
