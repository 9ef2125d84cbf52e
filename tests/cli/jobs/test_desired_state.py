"""Changes of the desired state while the master is away: none is lost silently to a later one."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.jobs.desired import Desired
from tests.catalog.api_server import RECORD, RUNNING, ApiServer, set_timing


@pytest.fixture
def away(api: ApiServer, monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    """Its master has acted on generation 1 and does not answer any more."""
    set_timing(monkeypatch, answer_timeout_seconds=0.05)
    api.submitted()
    api.said(state="running", observedGeneration=1)
    api.master(**RUNNING)
    api.wants(Desired(generation=1, nodes={"worker": 9}))
    return api


def test_scale_after_an_unseen_stop_is_refused(elasticdl: Any, away: ApiServer) -> None:
    assert "has not answered" in elasticdl("jobs", "stop", "job").err
    result = elasticdl("jobs", "scale", "job", "--num_workers=3")
    assert result.code == 2
    assert "Job job is to be stopped (elasticdl jobs stop), which its master has not seen yet." in result.err
    assert away.desired == Desired(generation=2, stop="elasticdl jobs stop")


def test_scale_keeps_other_sizes_not_yet_seen(elasticdl: Any, away: ApiServer) -> None:
    assert "as soon as its master has seen it" in elasticdl("jobs", "scale", "job", "--num_workers=3").out
    elasticdl("jobs", "scale", "job", "--num_ps=2")
    assert away.desired == Desired(generation=3, nodes={"worker": 3, "ps": 2})


def test_sizes_that_were_acted_on_are_dropped(elasticdl: Any, away: ApiServer) -> None:
    elasticdl("jobs", "scale", "job", "--num_ps=2")
    assert away.desired == Desired(generation=2, nodes={"ps": 2})


@pytest.mark.parametrize(
    ("result", "code", "words"),
    [
        ({"message": "from 2 to 3 workers"}, 0, "Job job goes from 2 to 3 workers."),
        ({}, 0, "Job job has that size."),
        (
            {
                "message": "from 4 to 3 workers",
                "ignoredVictims": {"worker-7": "there is no node of that name."},
            },
            0,
            "note: worker-7 is not drained: there is no node of that name.",
        ),
        ({"error": "The training is over."}, 2, "error: The training is over."),
    ],
)
def test_scale_prints_the_masters_result(
    elasticdl: Any, api: ApiServer, result: dict[str, str], code: int, words: str
) -> None:
    api.submitted()
    api.said(state="running")
    api.master(**RUNNING)

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, name) == ("PATCH", RECORD):
            api.said(state="running", observedGeneration=api.desired.generation, desiredResult=result)

    api.meanwhile = meanwhile
    shown = elasticdl("jobs", "scale", "job", "--num_workers=3")
    assert shown.code == code
    assert words in shown.out + shown.err


def test_victims_are_written_beside_the_size(elasticdl: Any, away: ApiServer) -> None:
    elasticdl("jobs", "scale", "job", "--num_workers=3", "--victim=worker-0", "--victim=worker-2")
    assert away.desired == Desired(generation=2, nodes={"worker": 3}, victims=("worker-0", "worker-2"))


def test_stop_written_at_the_same_moment_is_not_overwritten(elasticdl: Any, away: ApiServer) -> None:
    written: list[str] = []

    def meanwhile(method: str, kind: str, name: str) -> None:
        if (method, name) == ("GET", RECORD) and len(written) < 3:
            written.append(name)
            away.wants(Desired(generation=2, stop="theirs"))

    # The first two requests are those that find the job and its state.
    looks = iter([None, None])
    away.meanwhile = lambda *request: meanwhile(*request) if next(looks, "enough") == "enough" else None
    assert elasticdl("jobs", "scale", "job", "--num_workers=3").code == 2
    assert away.desired.stop == "theirs"
