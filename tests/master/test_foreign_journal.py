"""A journal says of which job it is: that of another job, or of an earlier one of the same name, is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.commands.job import StopJob
from elasticdl.master.journal import Journal
from elasticdl.master.master import Master, journal_folder
from elasticdl.platforms.platform import Platform

Start = Callable[..., Master]


@pytest.fixture
def start(tmp_path: Path, nowhere: Platform) -> Iterator[Start]:
    """A master in the one folder, after those before it have ended."""
    masters: list[Master] = []

    def end() -> None:
        for master in masters:
            master._journal.close()
            master._events.close()

    def begin(*, name: str = "mine", token: str = "t", **flags: Any) -> Master:
        end()
        spec = JobSpec.build(job_name=name, image_name="i", job_command="x", **flags)
        masters.append(Master(spec=spec, folder=tmp_path, platform=nowhere, token=token, environment={}))
        masters[-1].recover()
        return masters[-1]

    yield begin
    end()


def stop(master: Master) -> None:
    master.do(StopJob(reason="enough"))


def test_the_next_master_of_the_job_goes_on(start: Start) -> None:
    stop(start())
    # Whatever has been changed about the job.
    assert start(num_workers=3).state.stopping


@pytest.mark.parametrize(("name", "token"), [("mine", "another"), ("another", "t"), ("another", "another")])
def test_that_of_another_job_does_not(start: Start, tmp_path: Path, name: str, token: str) -> None:
    stop(start())
    with pytest.raises(UserError, match=f"not of this job {name}, but of another") as refused:
        start(name=name, token=token)
    assert str(journal_folder(tmp_path)) in str(refused.value)
    # Nothing has been changed there.
    assert start().state.stopping


def test_journal_without_job_identity_is_accepted(start: Start, tmp_path: Path) -> None:
    """As masters wrote them before."""
    first = start()
    stop(first)
    first._journal.close()
    with Journal(journal_folder(tmp_path)) as journal:
        journal.compact(first.state.snapshot())
    assert start(token="another").state.stopping
