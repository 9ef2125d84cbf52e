"""A name can be used again: each run of a job has a folder of its own, and the name means the newest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder, RecordedState
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec

Build = Callable[..., JobSpec]


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore(tmp_path)


@pytest.fixture
def run(store: JobStore, job: Build) -> Callable[..., JobFolder]:
    """A run of the job `one` that has ended."""

    def make(now: float, state: RecordedState = "succeeded", name: str = "one") -> JobFolder:
        folder = store.create(job(job_name=name), now=now)
        folder.finish(state, message=f"run of {now:g}", now=now + 1)
        folder.release()
        return folder

    return make


@pytest.mark.parametrize("state", ["succeeded", "failed", "stopped"])
def test_name_of_an_ended_job_is_reused_and_the_run_is_kept(
    store: JobStore, run: Callable[..., JobFolder], state: RecordedState
) -> None:
    first = run(1.0, state)
    (first.logs_path / "master.log").write_text("said")
    second = run(2.0)
    assert second.name == "one"
    assert [folder.name for folder in store.list()] == ["one.1", "one"]
    assert store.get("one").record().message == "run of 2"
    assert store.get("one.1").record().message == "run of 1"
    # Paths into the first run, such as of its checkpoints, are what they were.
    assert store.get("one.1").path == first.path
    assert store.get("one.1").log_path("master").read_text() == "said"


def test_name_of_an_interrupted_job_is_reused(
    store: JobStore, job: Build, run: Callable[..., JobFolder]
) -> None:
    store.create(job(job_name="one"), now=1.0).release()
    run(2.0)
    assert store.get("one.1").state() == "interrupted"


def test_runs_are_numbered_on_after_one_is_deleted(store: JobStore, run: Callable[..., JobFolder]) -> None:
    for now in (1.0, 2.0, 3.0):
        run(now)
    store.delete("one.2")
    assert [folder.name for folder in store.list()] == ["one.1", "one"]
    store.delete("one.1")
    run(4.0)
    assert [folder.name for folder in store.list()] == ["one.3", "one"]
    assert store.get("one.4").record().created == 4.0


def test_exact_name_of_the_newest_run_stays_its_name(store: JobStore, run: Callable[..., JobFolder]) -> None:
    name = store.exact_name(run(1.0))
    run(2.0)
    assert store.get(name).record().created == 1.0


def test_deleting_a_name_deletes_all_its_runs(store: JobStore, run: Callable[..., JobFolder]) -> None:
    for now in (1.0, 2.0, 3.0):
        run(now)
    run(4.0, name="other")
    store.delete("one")
    assert [child.name for child in store.path.iterdir()] == ["other"]
    with pytest.raises(UserError, match=r"There is no job 'one\.1'"):
        store.get("one.1")


def test_running_job_keeps_its_earlier_runs_from_being_deleted(
    store: JobStore, job: Build, run: Callable[..., JobFolder]
) -> None:
    run(1.0)
    running = store.create(job(job_name="one"), now=2.0)
    with pytest.raises(UserError, match="Job one is running"):
        store.delete("one")
    assert [folder.name for folder in store.list()] == ["one.1", "one"]
    assert running.is_running()
    store.delete("one.1")
    assert [folder.name for folder in store.list()] == ["one"]


@pytest.mark.parametrize("name", ["one.2", "one.", "one.x", "one.1.1", ".1"])
def test_unknown_run_is_not_found(store: JobStore, run: Callable[..., JobFolder], name: str) -> None:
    run(1.0)
    with pytest.raises(UserError, match="There is no job"):
        store.get(name)


# -- another attempt of a run --------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["failed", "stopped"])
def test_reopened_run_is_running_without_traces_of_its_end(
    store: JobStore, run: Callable[..., JobFolder], state: RecordedState
) -> None:
    ended = run(1.0, state)
    ended.status_path.write_text("{}")
    ended.master_address_path.write_text("127.0.0.1:1")
    folder = store.reopen("one")
    assert folder.is_running()
    assert folder.state() == "running"
    record = folder.record()
    assert (record.attempts, record.created, record.ended, record.message) == (2, 1.0, None, "")
    assert record.directory == str(Path.cwd())
    assert not folder.status_path.exists()
    assert folder.master_address() is None


def test_succeeded_run_is_not_reopened(store: JobStore, run: Callable[..., JobFolder]) -> None:
    run(1.0)
    with pytest.raises(UserError, match="Job one is over: it has succeeded"):
        store.reopen("one")
    assert store.get("one").record().attempts == 1


def test_running_run_is_not_reopened(store: JobStore, job: Build) -> None:
    store.create(job(job_name="one"))
    with pytest.raises(UserError, match="Job one is running") as refused:
        store.reopen("one")
    assert "elasticdl jobs attach one" in refused.value.hint


def test_earlier_run_is_not_reopened_while_a_newer_one_runs(
    store: JobStore, job: Build, run: Callable[..., JobFolder]
) -> None:
    run(1.0, "failed")
    newer = store.create(job(job_name="one"), now=2.0)
    with pytest.raises(UserError, match="a job of that name is running"):
        store.reopen("one.1")
    assert store.get("one.1").state() == "failed"
    newer.release()
    assert store.reopen("one.1").name == "one.1"


def test_record_of_an_older_version_is_read(store: JobStore, run: Callable[..., JobFolder]) -> None:
    folder = run(1.0, "failed")
    folder.record_path.write_text('{"kind": "train", "state": "failed", "created": 1.0, "message": ""}')
    assert folder.record().attempts == 1
    assert store.reopen("one").record().attempts == 2


def test_lock_passed_on_is_held_until_the_heir_releases_it(store: JobStore, job: Build) -> None:
    import os

    folder = store.create(job(job_name="one"))
    heir = JobFolder(folder.path)
    heir.adopt_lock(os.dup(folder.lock))
    folder.release()
    assert store.get("one").is_running()
    heir.release()
    assert not store.get("one").is_running()
