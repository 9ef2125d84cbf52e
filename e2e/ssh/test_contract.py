"""Nodes on hosts pass the contract that all platforms pass (`tests/platforms/test_contract.py`)."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.conftest import ROOT
from e2e.ssh.machines import SshHosts
from elasticdl.platforms.local.host import Host
from elasticdl.platforms.local.local_platform import LocalPlatform
from elasticdl.platforms.platform import Platform
from elasticdl.platforms.ssh.launch import SshOptions
from elasticdl.platforms.ssh.ssh_platform import SshPlatform, SshSettings


def _contract() -> dict[str, Any]:
    found = importlib.util.spec_from_file_location(
        "contract", ROOT / "tests" / "platforms" / "test_contract.py"
    )
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return {name: value for name, value in vars(module).items() if name.startswith("test_") or name == "play"}


globals().update(_contract())


@pytest.fixture
def open_platform(tmp_path: Path, hosts: SshHosts) -> Iterator[Callable[[], Platform]]:
    settings = SshSettings(
        hosts=("first", "second"),
        options=SshOptions(python=sys.executable, config=str(hosts.config)),
        is_addressed=True,
    )
    with Host(tmp_path / "socket", tmp_path / "logs", os.environ):
        yield lambda: SshPlatform(LocalPlatform(tmp_path / "socket"), settings, tmp_path / "hosts")
