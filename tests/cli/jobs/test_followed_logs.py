"""`elasticdl jobs logs -f`: to the end of the job, whatever happens to containers, connections and machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.catalog.api_server import BREAK_OFF, MASTER, RUNNING, SILENCE, ApiServer, set_timing

WORKER = "job-edljob-worker-0"


def at(moment: str, text: str) -> str:
    return f"2026-11-16T05:35:{moment}Z {text}\n"


@pytest.fixture
def running(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    set_timing(monkeypatch, log_drain_seconds=0.2)
    api.submitted()
    api.said(state="running")
    api.master(**RUNNING)
    return api


def finish(api: ApiServer) -> None:
    for kind, name in list(api.objects):
        if kind == "pods":
            api.change("pods", name, {"status": {"phase": "Succeeded"}})
    api.said(state="succeeded")


def test_a_container_that_is_started_again(elasticdl: Any, running: ApiServer) -> None:
    def log(query: dict[str, str]) -> Iterator[str]:
        if "sinceTime" not in query:
            yield at("01.5", "first")
            return
        yield at("01.5", "first")
        yield at("02.25", "of the second container")
        finish(running)

    running.logs[MASTER] = log
    assert elasticdl("jobs", "logs", "job", "-f").out == "master: first\nmaster: of the second container\n"
    assert running.log_queries[1][1]["sinceTime"] == "2026-11-16T05:35:01Z"
    assert {query["container"] for _, query in running.log_queries} == {"master"}


def test_a_connection_that_breaks_off_in_the_middle_of_a_line(elasticdl: Any, running: ApiServer) -> None:
    def log(query: dict[str, str]) -> Iterator[Any]:
        yield at("01.1", "one")
        if "sinceTime" not in query:
            yield at("01.2", "two")[:-3]
            yield BREAK_OFF
        yield at("01.2", "two")
        finish(running)

    running.logs[MASTER] = log
    assert elasticdl("jobs", "logs", "job", "-f").out == "master: one\nmaster: two\n"


def test_followed_logs_include_pods_created_later(elasticdl: Any, running: ApiServer) -> None:
    def of_worker(query: dict[str, str]) -> Iterator[str]:
        yield at("03", "hello")
        finish(running)

    def of_master(query: dict[str, str]) -> Iterator[str]:
        if "sinceTime" not in query:
            yield at("01", "one comes")
            running.worker(0)

    running.logs |= {MASTER: of_master, WORKER: of_worker}
    assert elasticdl("jobs", "logs", "job", "-f").out == "master: one comes\nworker-0: hello\n"


def test_replaced_master_continues_its_followed_log(elasticdl: Any, running: ApiServer) -> None:
    asked = []

    def log(query: dict[str, str]) -> Iterator[str]:
        asked.append(query)
        if len(asked) == 1:
            yield at("09", "the first")
            pod = running.objects["pods", MASTER]
            running.put("pods", {**pod, "metadata": {**pod["metadata"], "uid": "another"}})
            return
        # Its machine's clock is behind.
        yield at("08", "the second")
        finish(running)

    running.logs[MASTER] = log
    assert elasticdl("jobs", "logs", "job", "-f").out == "master: the first\nmaster: the second\n"


def test_a_machine_that_says_nothing_does_not_hold_up_the_end(elasticdl: Any, running: ApiServer) -> None:
    running.worker(0)

    def of_worker(query: dict[str, str]) -> Iterator[Any]:
        yield at("01", "hello")
        running.change("pods", MASTER, {"status": {"phase": "Succeeded"}})
        running.said(state="succeeded")
        yield SILENCE

    running.logs[WORKER] = of_worker
    assert elasticdl("jobs", "logs", "job", "-f").out == "worker-0: hello\n"


def test_broken_log_without_follow_is_reported(elasticdl: Any, running: ApiServer) -> None:
    running.logs[MASTER] = lambda query: iter([at("01", "hello"), BREAK_OFF])
    result = elasticdl("jobs", "logs", "job")
    assert (result.code, result.out) == (0, "master: hello\n")
    assert "The log of master cannot be read" in result.err
