"""The dashboard beside the controller: its process comes back, and no failure of it is the controller's."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from elasticdl.backoff import Backoff
from elasticdl.controller.serving.webhook import SECRET_NAME
from elasticdl.dashboard import companion as module
from elasticdl.dashboard.companion import CompanionSettings, CompanionTiming, DashboardCompanion
from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.client import Cluster
from elasticdl.platforms.kubernetes.kubeconfig import find_access
from tests.catalog.api_server import ApiServer
from tests.catalog.api_server import api as api

# Writes what it was given, and ends as the test says: a number, or not at all.
PROGRAM = """
import json, os, pathlib, signal, sys
folder = pathlib.Path(sys.argv[1])
flags = dict(flag.lstrip("-").partition("=")[::2] for flag in sys.argv[2:] if "host_name" not in flag)
number = len(list(folder.glob("start-*")))
content = {"pid": os.getpid(), "home": os.environ["ELASTICDL_HOME"], "flags": flags, "names": sys.argv[2:],
           "key": pathlib.Path(flags["tls_key"]).read_text(),
           "oom_score_adj": int(pathlib.Path("/proc/self/oom_score_adj").read_text())}
(folder / "part").write_text(json.dumps(content))
(folder / "part").rename(folder / f"start-{number}")
if (folder / "fails").exists():
    sys.exit(3)
signal.pause()
"""
FAST = CompanionTiming(
    poll_seconds=0.01, refresh_seconds=0.01, backoff=Backoff(initial_seconds=0.01, max_seconds=0.01)
)


def put_certificate(api: ApiServer, key: str) -> None:
    files = {"ca.crt": "authority", "tls.crt": "certificate", "tls.key": key}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in files.items()}
    api.put("secrets", {"metadata": {"name": SECRET_NAME}, "data": data})


def starts(folder: Path) -> list[dict[str, object]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("start-*"))]


async def wait_for(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def run_beside(
    folder: Path, steps: Callable[[], Awaitable[None]], *, settings: CompanionSettings | None = None
) -> None:
    """Runs the companion with the program in place of the dashboard until the steps are done."""
    companion = DashboardCompanion(
        settings or CompanionSettings(bind="0.0.0.0", port=8443),
        command=(sys.executable, "-c", PROGRAM, str(folder)),
        timing=FAST,
    )

    async def main() -> None:
        async with Cluster(find_access(namespace="lab"), patience=1.0) as cluster:
            running = asyncio.create_task(companion.run(cluster))
            try:
                await steps()
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


def test_process_starts_when_there_is_a_certificate(api: ApiServer, tmp_path: Path) -> None:
    async def steps() -> None:
        await wait_for(lambda: ("GET", "secrets", SECRET_NAME) in api.asked)
        assert starts(tmp_path) == []
        put_certificate(api, "first")
        await wait_for(lambda: starts(tmp_path))

    run_beside(tmp_path, steps)
    [start] = starts(tmp_path)
    assert start["key"] == "first"
    flags = start["flags"]
    assert isinstance(flags, dict)
    assert {"cluster_auth", "bind", "port"} <= flags.keys()
    assert "allow_actions" not in flags
    assert "--host_name=training-job-controller.lab.svc" in str(start["names"])
    assert start["oom_score_adj"] == 1000, "it is killed before the controller"
    assert not Path(str(start["home"])).exists(), "its folder went with it"
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(start["pid"])), 0)


def test_killed_process_is_started_again(api: ApiServer, tmp_path: Path) -> None:
    put_certificate(api, "first")

    async def steps() -> None:
        await wait_for(lambda: starts(tmp_path))
        os.kill(int(str(starts(tmp_path)[0]["pid"])), signal.SIGKILL)
        await wait_for(lambda: len(starts(tmp_path)) == 2)

    run_beside(tmp_path, steps)


def test_failing_process_is_started_until_it_works(api: ApiServer, tmp_path: Path) -> None:
    put_certificate(api, "first")
    (tmp_path / "fails").touch()

    async def steps() -> None:
        await wait_for(lambda: len(starts(tmp_path)) >= 3)
        (tmp_path / "fails").unlink()

    run_beside(tmp_path, steps)


def test_new_certificate_is_served(api: ApiServer, tmp_path: Path) -> None:
    put_certificate(api, "first")

    async def steps() -> None:
        await wait_for(lambda: starts(tmp_path))
        put_certificate(api, "second")
        await wait_for(lambda: len(starts(tmp_path)) == 2)

    run_beside(tmp_path, steps)
    assert [start["key"] for start in starts(tmp_path)] == ["first", "second"]


def test_certificate_of_files_comes_before_that_of_the_webhook(api: ApiServer, tmp_path: Path) -> None:
    put_certificate(api, "webhook")
    paths = tmp_path / "own.crt", tmp_path / "own.key"
    for path in paths:
        path.write_text("own")
    settings = CompanionSettings(bind="0.0.0.0", port=8443, tls_cert=paths[0], tls_key=paths[1])

    async def steps() -> None:
        await wait_for(lambda: starts(tmp_path))

    run_beside(tmp_path, steps, settings=settings)
    assert starts(tmp_path)[0]["key"] == "own"
    assert ("GET", "secrets", SECRET_NAME) not in api.asked


def test_missing_packages_are_reported_once(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_PACKAGES", ("no_such_package",))

    async def main() -> None:
        async with Cluster(find_access(), patience=1.0) as cluster:
            await DashboardCompanion(CompanionSettings(bind="::", port=1)).run(cluster)

    asyncio.run(main())
    assert [record.message for record in caplog.records if "no_such_package" in record.message]


@pytest.mark.parametrize(
    ("settings", "has_webhook", "words"),
    [
        (CompanionSettings(bind="::", port=1), False, "needs a certificate"),
        (CompanionSettings(bind="::", port=1, tls_cert=Path("a")), True, "belong together"),
    ],
)
def test_settings_without_a_certificate_are_refused(
    settings: CompanionSettings, has_webhook: bool, words: str
) -> None:
    with pytest.raises(UserError, match=words):
        settings.check(has_webhook=has_webhook)
