"""Checks that a cluster can be made on this machine, before anything starts, with errors that say what to do."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from e2e.cluster.commands import succeeds

_INSTEAD = "Name a cluster that is there in KUBECONFIG, or use a machine of which you are root."
# Each of a namespace of its own, so that it leaves nothing behind.
_NEEDS = {
    "network namespaces": ("unshare", "--net", "ip", "link", "add", "type", "bridge"),
    "mounts": ("unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"),
}


def check_is_root() -> None:
    if os.geteuid() != 0:
        raise SystemExit(
            f"A cluster on this machine needs root: network namespaces, cgroups, packages. {_INSTEAD}"
        )
    if shutil.which("apt-get") is None:
        raise SystemExit(
            f"A cluster on this machine needs Debian's packages: there is no apt-get. {_INSTEAD}"
        )


def check_may_isolate() -> None:
    """A container without privileges has a root that may not do these."""
    refused = [what for what, command in _NEEDS.items() if not succeeds(*command)]
    if not any(os.access(path, os.W_OK) for path in Path("/sys/fs/cgroup").iterdir() if path.is_dir()):
        refused.append("cgroups")
    if refused:
        raise SystemExit(
            f"A cluster on this machine needs {', '.join(refused)}, which it refuses. {_INSTEAD}"
        )
