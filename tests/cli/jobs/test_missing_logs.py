"""`elasticdl jobs logs` of a job without logs: an error with the reason, and no empty success."""

from __future__ import annotations

from typing import Any

import pytest

from tests.catalog.api_server import MASTER, RUNNING, ApiServer


@pytest.mark.parametrize("words", [(), ("worker-0",), ("-f",)])
def test_logs_of_a_job_whose_pods_are_deleted_is_an_error(
    elasticdl: Any, api: ApiServer, words: tuple[str, ...]
) -> None:
    api.submitted()
    api.said(state="stopped")
    del api.objects["pods", MASTER]
    result = elasticdl("jobs", "logs", "job", *words, "--namespace=lab")
    assert result.code == 2
    assert "There are no logs of job job." in result.err
    assert "They went with the job's pods" in result.err


def test_logs_followed_before_the_pods_are_there_are_printed(elasticdl: Any, api: ApiServer) -> None:
    api.submitted()
    api.said(state="running")
    api.master(**RUNNING)
    pod = api.objects["pods", MASTER]
    lists: list[str] = []

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, kind, name) == ("GET", "pods", "None"):
            lists.append(name)
            if len(lists) == 3:
                labels = {**pod["metadata"]["labels"], "elasticdl-job-name": "job"}
                api.change("pods", MASTER, {"metadata": {"labels": labels}})

    # A pod that is not labelled yet is in no list.
    api.change("pods", MASTER, {"metadata": {"labels": {"elasticdl-job-name": "none"}}})
    api.meanwhile = meanwhile

    def log(query: dict[str, str]) -> Any:
        yield "2026-11-16T05:35:01Z hello\n"
        api.change("pods", MASTER, {"status": {"phase": "Succeeded"}})
        api.said(state="succeeded")

    api.logs[MASTER] = log
    result = elasticdl("jobs", "logs", "job", "-f", "--namespace=lab")
    assert (result.code, result.out) == (0, "master: hello\n"), result.err


def test_unknown_node_names_the_nearest(elasticdl: Any, api: ApiServer) -> None:
    api.submitted()
    api.said(state="running")
    api.master(**RUNNING)
    result = elasticdl("jobs", "logs", "job", "mister")
    assert result.code == 2
    assert "Did you mean master?" in result.err
