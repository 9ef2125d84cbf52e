"""The command as a process: what it serves while no API server answers, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

_PORT = re.compile(r"Serving probes and metrics at 127\.0\.0\.1:(\d+)")
_WEBHOOK = "Serving the admission webhook"


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "namespace": "paddlecloud"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    flags = (f"--kubeconfig={path}", "--http_port=0", "--webhook_port=0")
    with subprocess.Popen(
        [sys.executable, "-m", "elasticdl.cli.main", "controller", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as running:
        yield running
        running.kill()


def lines_until(process: subprocess.Popen[str], words: str) -> str:
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if words in line:
            return text
    raise AssertionError(text)


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_controller_without_an_api_server_is_live_and_not_ready(process: subprocess.Popen[str]) -> None:
    found = _PORT.search(lines_until(process, _WEBHOOK))
    assert found
    address = f"http://127.0.0.1:{found[1]}"
    assert get(f"{address}/healthz") == (200, "ok\n")
    status, words = get(f"{address}/readyz")
    assert status == 503
    assert "trainingjobs.elasticdl.org" in words
    assert "elasticdl_controller_is_leader" in get(f"{address}/metrics")[1]
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 0
