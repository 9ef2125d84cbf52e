"""The desired state of a job: generations, what a change keeps, and documents that cannot be read."""

from __future__ import annotations

import json

import pytest

from elasticdl.jobs.desired import Desired, DesiredError


def test_desired_written_as_text_reads_back_equal() -> None:
    desired = Desired(generation=3, nodes={"worker": 4, "ps": 2}, victims=("worker-1",))
    assert Desired.from_text(desired.to_text()) == desired


@pytest.mark.parametrize("text", ["", "{}"])
def test_nothing_written_asks_for_nothing(text: str) -> None:
    assert Desired.from_text(text) == Desired()
    assert Desired.from_text(text).is_empty


def test_each_change_has_the_next_generation_and_keeps_other_roles() -> None:
    first = Desired().with_nodes({"worker": 4}, victims=["worker-7"])
    second = first.with_nodes({"ps": 2}, victims=["worker-7", "ps-1"])
    assert second == Desired(generation=2, nodes={"worker": 4, "ps": 2}, victims=("worker-7", "ps-1"))


def test_stop_overrides_counts() -> None:
    assert Desired(generation=5, nodes={"worker": 4}).with_stop("late") == Desired(generation=6, stop="late")


def test_change_after_an_observed_one_does_not_repeat_it() -> None:
    refused = Desired(generation=5, nodes={"worker": 4000}, victims=("worker-1",))
    assert refused.next_empty().with_nodes({"ps": 2}) == Desired(generation=6, nodes={"ps": 2})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no json", "cannot be read"),
        ("[1]", "expected an object"),
        ('{"version": 9}', "desired has version 9"),
        ('{"nodes": {"worker": "many"}}', "desired.nodes.worker: expected a whole number, found 'many'"),
        ('{"nodes": {"worker": -1}}', "asks for -1 worker nodes"),
        ('{"victims": "worker-1"}', "desired.victims: expected a list"),
    ],
)
def test_desired_that_cannot_be_read_is_refused_with_the_place(text: str, problem: str) -> None:
    with pytest.raises(DesiredError, match=problem):
        Desired.from_text(text)


def test_document_has_the_keys_of_kubernetes_conventions() -> None:
    document = json.loads(Desired(generation=1, nodes={"worker": 2}).to_text())
    assert document == {
        "version": 1,
        "generation": 1,
        "nodes": {"worker": 2},
        "victims": [],
        "stop": "",
        "pause": "",
    }


def test_pause_keeps_the_counts_and_ends_with_the_next_change() -> None:
    paused = Desired(generation=3, nodes={"worker": 2}, victims=("worker-1",)).with_pause("suspended")
    assert (paused.generation, paused.nodes, paused.victims) == (4, {"worker": 2}, ())
    resumed = paused.with_nodes({})
    assert (resumed.generation, resumed.nodes, resumed.pause) == (5, {"worker": 2}, "")
