"""A machine without a free port for the job's master: an error message, not a traceback. In a network namespace of the
test's own, in which there is one port.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def test_missing_port_is_an_error_message(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    assert unshare is not None, "a network of its own is made with unshare (util-linux)"
    narrow = f'echo "40000 40000" > {RANGE} && exec "$@"'
    train = [sys.executable, "-m", "elasticdl.cli.main", "train", "--job_command=true", "--num_workers=1"]
    ended = subprocess.run(
        [unshare, "--map-root-user", "--net", "sh", "-c", narrow, "sh", *train],
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert "No port of this machine is free for the job's master: Address already in use." in ended.stderr
    assert "hint: If all are in use" in ended.stderr
    assert "Traceback" not in ended.stderr
