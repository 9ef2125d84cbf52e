"""Jobs are kept under their names, running or finished, until they are deleted."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.job_folder import JobFolder
from elasticdl.jobs.job_store import JobStore, default_home, new_suffix
from elasticdl.jobs.spec import JobSpec

Build = Callable[..., JobSpec]


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore(tmp_path / "home")


def finished(store: JobStore, spec: JobSpec, *, now: float = 1.0) -> JobFolder:
    folder = store.create(spec, now=now)
    folder.finish("succeeded", message="done", now=now + 1)
    folder.release()
    return folder


def test_a_new_job(store: JobStore, job: Build) -> None:
    spec = job(job_name="one")
    folder = store.create(spec, now=5.0)
    assert folder.name == "one"
    assert folder.path == store.path / "one"
    assert folder.spec() == spec
    assert folder.state() == "running"
    assert folder.record().created == 5.0
    assert folder.master_address() is None
    for path in (folder.logs_path, folder.journal_path, folder.tensorboard_path):
        assert path.is_dir()
    assert folder.log_path("worker-0") == folder.path / "logs" / "worker-0.log"


def test_a_jobs_secrets_are_its_owners(store: JobStore, job: Build) -> None:
    first, second = (store.create(job(job_name=name)) for name in ("one", "two"))
    assert stat.S_IMODE(first.token_path.stat().st_mode) == 0o600
    assert stat.S_IMODE(first.path.stat().st_mode) == 0o700
    assert len(first.token()) == 64
    assert first.token() != second.token()


def test_the_end_of_a_job(store: JobStore, job: Build) -> None:
    folder = store.create(job(job_name="one"), now=5.0)
    folder.finish("failed", message="it broke", now=9.0)
    record = store.get("one").record()
    assert (record.kind, record.state, record.created, record.ended) == ("train", "failed", 5.0, 9.0)
    assert record.message == "it broke"


def test_name_of_a_running_job_is_refused(store: JobStore, job: Build) -> None:
    folder = store.create(job(job_name="one"))
    with pytest.raises(UserError, match="a job of that name is running") as caught:
        store.create(job(job_name="one"))
    assert "--replace" in caught.value.hint
    assert [child.name for child in store.path.iterdir()] == ["one"]
    assert folder.is_running()


def test_jobs_are_listed_by_age(store: JobStore, job: Build) -> None:
    assert store.list() == ()
    for now, name in enumerate(["c", "a", "b"]):
        finished(store, job(job_name=name), now=float(now))
    assert [folder.name for folder in store.list()] == ["c", "a", "b"]


def test_an_unknown_job(store: JobStore, job: Build) -> None:
    finished(store, job(job_name="digits-cnn"))
    with pytest.raises(UserError, match=r"There is no job 'digit-cnn'\. Did you mean digits-cnn"):
        store.get("digit-cnn")
    for name in ("..", ".", "", "digits-cnn/logs"):
        with pytest.raises(UserError, match="There is no job"):
            store.get(name)


def test_a_running_job_is_not_deleted(store: JobStore, job: Build) -> None:
    folder = store.create(job(job_name="one"))
    with pytest.raises(UserError, match="is running") as caught:
        store.delete("one")
    assert "elasticdl jobs stop one" in caught.value.hint
    assert folder.spec_path.exists()
    folder.release()
    store.delete("one")
    assert list(store.path.iterdir()) == []
    store.create(job(job_name="one"))


def test_a_damaged_record_hides_no_other_job(store: JobStore, job: Build) -> None:
    finished(store, job(job_name="good"))
    bad = finished(store, job(job_name="bad"))
    for text in ("{", "[1]", '{"kind": "train"}'):
        bad.record_path.write_text(text)
        assert {folder.name for folder in store.list()} == {"good", "bad"}
        with pytest.raises(UserError, match="record of job bad is damaged"):
            bad.record()
    store.delete("bad")
    assert [folder.name for folder in store.list()] == ["good"]


def test_the_record_is_replaced_as_a_whole(store: JobStore, job: Build) -> None:
    folder = store.create(job(job_name="one"))
    with open(folder.record_path) as reader:
        folder.finish("succeeded", now=1.0)
        assert '"running"' in reader.read()
    assert folder.record().state == "succeeded"
    assert sorted(child.name for child in folder.path.iterdir() if child.name.startswith(".")) == []


def test_the_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ELASTICDL_HOME", str(tmp_path / "x"))
    assert default_home() == tmp_path / "x"
    assert JobStore().path == tmp_path / "x" / "jobs"
    monkeypatch.delenv("ELASTICDL_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_home() == tmp_path / ".elasticdl"
    monkeypatch.setenv("ELASTICDL_HOME", "relative")
    monkeypatch.chdir(tmp_path)
    assert default_home() == tmp_path / "relative"


def test_suffixes_differ() -> None:
    assert len({new_suffix() for _ in range(50)}) == 50


def test_a_home_that_is_a_file(job: Build, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        JobStore(tmp_path / "file").create(job(job_name="one"))


def test_a_full_disk(store: JobStore, job: Build) -> None:
    folder = store.create(job(job_name="one"))
    # Every write to this file fails as it does on a full disk.
    (folder.path / f".record.json.{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(UserError, match="no space left"):
        folder.finish("succeeded", now=1.0)
    assert folder.record().state == "running"
