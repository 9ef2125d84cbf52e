"""The dashboard as a process, and a real browser in front of it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from e2e.conftest import ROOT, wait_until
from elasticdl.dashboard.registry import DashboardRegistry

# For a loaded machine; nothing is asserted about time.
TIMEOUT_MILLISECONDS = 120_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium: `make e2e-programs` installs it."""
    program = shutil.which("chromium")
    assert program is not None, "chromium is not installed: make e2e-programs"
    with sync_playwright() as playwright:
        # Root has no sandbox.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class DashboardProcess:
    """`elasticdl dashboard`, on a port that stays the same when it is restarted."""

    def __init__(self, home: Path, *flags: str) -> None:
        self.home = home
        # Of no cluster, unless a test writes it.
        self.kubeconfig = home / "kubeconfig"
        self._flags = flags
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._port = server.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "elasticdl.cli.main",
            "dashboard",
            f"--port={self._port}",
            *self._flags,
        ]
        environment = {
            **os.environ,
            "ELASTICDL_HOME": str(self.home),
            "KUBECONFIG": str(self.kubeconfig),
        }
        with (self.home / "dashboard.out").open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
        wait_until(DashboardRegistry(self.home).address, "the dashboard runs")

    def stop(self) -> None:
        """As Ctrl-C does."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    @property
    def output(self) -> str:
        return (self.home / "dashboard.out").read_text()

    def link(self, job: str = "") -> str:
        link = DashboardRegistry(self.home).link(job)
        assert link is not None
        return link

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"


class Viewer:
    """A page that collects what went wrong in it: errors of scripts, and what the policy has blocked."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.problems: list[str] = []
        page.set_default_timeout(TIMEOUT_MILLISECONDS)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", lambda message: self._note(message.type, message.text))

    def _note(self, kind: str, text: str) -> None:
        # A server that is away is a part of the tests.
        if kind == "error" and "Failed to load resource" not in text and "ERR_" not in text:
            self.problems.append(text)

    def shows(self, text: str, *, within: str = "main") -> None:
        """Waits until a text is on the page."""
        self.page.locator(within).get_by_text(text).first.wait_for()

    def open_tab(self, name: str) -> None:
        self.page.get_by_role("tab", name=name).click()
        self.page.locator(f"[role=tab][aria-selected=true]:has-text('{name}')").wait_for()

    def fits(self) -> bool:
        """Nothing is wider than the window."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))
