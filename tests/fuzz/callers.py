"""What fuzzers of ports share: certificates for encrypted ones, and a limit for the memory of the process."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import psutil

from elasticdl.platforms.kubernetes.credentials import Credentials, tls_name
from elasticdl.wire.security import CA_FILE, CERT_FILE, KEY_FILE, TLS_NAME

_GROWTH_BYTES = 1 << 30
CALL_SECONDS = 20.0


class Memory:
    """Fails as soon as the process has grown by more than nonsense may cost."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._before = self._process.memory_info().rss

    def check(self) -> None:
        grown = self._process.memory_info().rss - self._before
        assert grown < _GROWTH_BYTES, f"{grown:,} bytes more than at the beginning"


@contextlib.contextmanager
def encrypted() -> Iterator[None]:
    """The environment of a job with certificates, as its nodes have it on Kubernetes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in Credentials.make("fuzz").files().items():
            (folder / file).write_text(text)
        variables = {
            CA_FILE: str(folder / "ca.crt"),
            TLS_NAME: tls_name("fuzz"),
            CERT_FILE: str(folder / "tls.crt"),
            KEY_FILE: str(folder / "tls.key"),
        }
        with mock.patch.dict(os.environ, variables):
            yield
