"""The data of the pages as JSON and as streams, at the real server, of jobs on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.jobs.history.entries import NodeChange, NodeState, to_line
from elasticdl.jobs.job_store import JobStore
from tests.dashboard.client import Client
from tests.dashboard.stored_jobs import NOW, spec_of, store_job

Serve = Callable[..., Client]
HOSTILE = '</script><img src=x onerror=alert(1)>\x1b[31m "\\ ‮ \x00'


def test_jobs_have_state_sentence_progress_and_loss(serve: Serve, home: Path) -> None:
    store_job(home, "older", state="failed", message="Out of shards.\nMore.", age=10)
    store_job(home, "newer")
    document = serve().get("/api/jobs").json()
    jobs = {job["job"]: job for job in document["jobs"]}
    assert document["problem"] is None
    assert jobs["older"]["state"] == "failed"
    assert jobs["older"]["sentence"] == "Out of shards."
    assert (jobs["newer"]["done"], jobs["newer"]["total"]) == (200, 200)
    assert jobs["newer"]["metrics"] == {"accuracy": 0.9, "loss": 0.3}
    assert jobs["newer"]["spark"] == [float(f"{1 / step:.4g}") for step in range(1, 21)]


def test_job_that_cannot_be_read_does_not_hide_the_others(serve: Serve, home: Path) -> None:
    store_job(home, "good")
    store_job(home, "bad").record_path.write_text("{")
    jobs = {job["job"]: job for job in serve().get("/api/jobs").json()["jobs"]}
    assert jobs["good"]["state"] == "succeeded"
    assert jobs["bad"]["state"] == "unreadable"
    assert "damaged" in jobs["bad"]["sentence"]


def test_earlier_run_of_a_name_is_renamed_in_the_list(serve: Serve, home: Path) -> None:
    client = serve()
    store_job(home, "one")
    assert [job["job"] for job in client.get("/api/jobs").json()["jobs"]] == ["one"]
    events = client.stream("/api/stream")
    next(events)
    store_job(home, "one", age=5)
    change = next(events)
    assert change.kind == "change"
    assert set(change.data) == {"/one", "/one.1"}
    events.close()


def test_page_of_a_job_has_what_was_recorded(serve: Serve, home: Path) -> None:
    store_job(home, "one")
    job = serve().get("/api/jobs/one").json()
    assert job["head"]["state"] == "succeeded"
    assert job["progress"]["done"] == 200
    assert job["series"]["time"] == [NOW - 50 + i for i in range(5)]
    assert job["series"]["workers"] == [2] * 5
    assert job["curves"]["loss"][0] == list(range(21))
    assert job["audit"]["exact"] is True
    assert job["log_names"] == ["worker-0"]
    nodes = {node["name"]: node for node in job["nodes"]}
    assert nodes["worker-0"]["spans"] == [[NOW - 60, "pending"], [NOW - 58, "working"]]
    assert (nodes["worker-1"]["state"], nodes["worker-1"]["reason"]) == ("ended", "killed")
    assert "--job_name=one" in job["definition"]["command"]
    assert "job_name: one" in job["definition"]["yaml"]


def test_job_without_a_history_has_the_curve_of_its_status(serve: Serve, home: Path) -> None:
    store_job(home, "one").history_path.unlink()
    job = serve().get("/api/jobs/one").json()
    assert job["series"]["time"] == []
    assert job["goodput"] is None
    assert job["curves"]["loss"][0] == list(range(1, 21))


def test_unfinished_line_of_the_history_is_read_when_it_is_complete(serve: Serve, home: Path) -> None:
    folder = store_job(home, "one")
    client = serve()
    events = client.stream("/api/jobs/one/stream")
    assert next(events).kind == "whole"
    line = to_line(NodeChange(time=NOW, node="worker-7", role="worker", state=NodeState.WORKING))
    with folder.history_path.open("a", buffering=1) as file:
        file.write(line[:10])
        file.flush()
        assert "worker-7" not in str(client.get("/api/jobs/one").json()["nodes"])
        file.write(line[10:])
    assert "worker-7" in str(next(events).data["nodes"])
    events.close()


def test_values_of_environment_variables_are_left_out(serve: Serve, home: Path) -> None:
    JobStore(home).create(spec_of("one", envs="PASSWORD=secret-value")).release()
    body = serve().get("/api/jobs/one").body
    assert b"PASSWORD" in body
    assert b"secret-value" not in body


def test_numbers_that_are_not_finite_are_valid_json(serve: Serve, home: Path) -> None:
    nan = float("nan")
    store_job(
        home, "one", loss=nan, losses=[[1, nan], [2, 0.5]], evaluations=[{"step": 1, "metrics": {"auc": nan}}]
    )
    client = serve()
    assert b"NaN" not in client.get("/api/jobs").body
    assert client.get("/api/jobs/one").json()["progress"]["loss"] is None


def test_unknown_job_is_an_error_with_the_nearest_name(serve: Serve, home: Path) -> None:
    store_job(home, "digits")
    client = serve()
    for path in ("/api/jobs/digit", "/api/jobs/digit/logs", "/api/jobs/digit/logs/stream"):
        reply = client.get(path)
        assert reply.status == 404
        assert "digits" in reply.json()["error"]


def test_hostile_log_line_and_name_stay_text(serve: Serve, home: Path) -> None:
    store_job(home, "one", logs=[HOSTILE], state="failed", message=HOSTILE.replace("\x00", ""))
    client = serve()
    reply = client.get("/api/jobs/one/logs")
    assert reply.headers["Content-Type"] == "application/json"
    assert [line["text"] for line in reply.json()["lines"]] == [HOSTILE]
    (batch, end) = list(client.stream("/api/jobs/one/logs/stream"))
    assert [line["text"] for line in batch.data] == [HOSTILE]
    assert end.kind == "end"
    assert client.get("/api/jobs/one").json()["head"]["sentence"].startswith("</script>")


def test_logs_are_filtered_and_bounded(serve: Serve, home: Path) -> None:
    store_job(home, "one", logs=[f"line {i}" for i in range(50)] + ["x" * 10_000])
    client = serve()
    lines = client.get("/api/jobs/one/logs?node=worker-0&contains=LINE%204").json()["lines"]
    assert [line["text"] for line in lines] == ["line 4", *(f"line {i}" for i in range(40, 50))]
    (last,) = client.get("/api/jobs/one/logs?tail=1").json()["lines"]
    assert last["text"].endswith("(6000 more characters)")
    for tail in ("-1", "x", "9" * 20, "%D9%A1"):
        assert client.get(f"/api/jobs/one/logs?tail={tail}").status == 400


def test_log_stream_goes_on_after_the_last_line_that_was_seen(serve: Serve, home: Path) -> None:
    stamp = "2023-11-14 22:13:2"
    logs = [f"{stamp}0,000 INFO a", f"{stamp}1,000 INFO b", f"{stamp}1,000 INFO c", f"{stamp}2,000 INFO d"]
    store_job(home, "one", logs=logs[:2])
    client = serve()
    seen = next(client.stream("/api/jobs/one/logs/stream"))
    assert [line["text"][-1] for line in seen.data] == ["a", "b"]
    log = JobStore(home).get("one").log_path("worker-0")
    log.write_text("".join(f"{line}\n" for line in logs))
    again = next(client.stream("/api/jobs/one/logs/stream", **{"Last-Event-ID": seen.id}))
    assert [line["text"][-1] for line in again.data] == ["c", "d"]


def test_stream_sends_the_whole_and_then_changes(serve: Serve, home: Path) -> None:
    store_job(home, "one")
    client = serve()
    events = client.stream("/api/stream")
    whole = next(events)
    assert (whole.kind, set(whole.data)) == ("whole", {"/one"})
    store_job(home, "two")
    change = next(events)
    assert (change.kind, set(change.data)) == ("change", {"/two"})
    JobStore(home).delete("one")
    assert next(events).data == {"/one": None}
    events.close()
    # A viewer that comes back gets what it has missed; one of another server gets everything.
    missed = client.stream("/api/stream", **{"Last-Event-ID": whole.id})
    assert [next(missed).data.keys(), next(missed).data.keys()] == [{"/two"}, {"/one"}]
    missed.close()
    other = client.stream("/api/stream", **{"Last-Event-ID": "0000-1"})
    assert next(other).kind == "whole"
    other.close()


@pytest.mark.parametrize("body", [b"[]", b"{", b"{" + b" " * 20_000 + b"}", b"[" * 10_000])
def test_body_of_an_action_that_is_no_object_is_refused(serve: Serve, home: Path, body: bytes) -> None:
    client, folder = serve(allows_actions=True), store_job(home, "one")
    headers = {**client.bearer, "X-ElasticDL-Dashboard": "1"}
    assert client.send("POST", "/api/jobs/one/actions/delete", headers, body).status == 400
    assert folder.path.exists()


def test_action_that_is_refused_says_why(serve: Serve, home: Path) -> None:
    client = serve(allows_actions=True)
    store_job(home, "one")
    headers = {**client.bearer, "X-ElasticDL-Dashboard": "1"}
    for action, body, words in (
        ("stop", b"{}", "is not running"),
        ("resume", b"{}", "it has succeeded"),
        ("scale", b'{"num_workers": "2"}', "no number of nodes"),
        ("scale", b"{}", "Give the desired size"),
        ("explode", b"{}", "There is no action"),
    ):
        reply = client.send("POST", f"/api/jobs/one/actions/{action}", headers, body)
        assert reply.status == 409
        assert words in reply.json()["error"]


def test_pages_are_whole_and_checked_again_by_browsers(serve: Serve) -> None:
    client = serve()
    page = client.send("GET", "/")
    assert page.headers["Content-Type"].startswith("text/html")
    for name in ("/app.js", "/jobs.js", "/job.js", "/style.css", "/vendor/uplot.js", "/vendor/htm-preact.js"):
        reply = client.send("GET", name)
        assert reply.status == 200
        again = client.send("GET", name, {"If-None-Match": reply.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")
    # Inline scripts and styles would be blocked by the policy.
    assert b"<style" not in page.body
    assert b"style=" not in page.body
    assert page.body.count(b"<script") == page.body.count(b"<script src=") + page.body.count(
        b'<script type="module" src='
    )
