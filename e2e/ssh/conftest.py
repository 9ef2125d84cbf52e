"""Hosts with a real sshd."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.ssh.machines import SshHosts


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshHosts]:
    """Two of them, `first` and `second`, which are this machine."""
    hosts = SshHosts(tmp_path_factory.mktemp("ssh"))
    for name in ("first", "second"):
        hosts.add(name)
    yield hosts
    hosts.close()
