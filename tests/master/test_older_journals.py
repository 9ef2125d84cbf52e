"""The journal of another version is refused: replaying it would give other results than were replied then."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.spec import JobSpec
from elasticdl.master.job_state import FORM, JobState
from elasticdl.master.journal import Journal
from elasticdl.master.master import Master, journal_folder
from elasticdl.master.settings import Plan
from elasticdl.platforms.platform import Platform

SPEC = JobSpec.build(job_name="older", image_name="i", job_command="x")
STOP = {"do": "stop", "with": {"reason": "enough"}}


def recovered(folder: Path, platform: Platform, *, form: int | None, records: int) -> JobState:
    snapshot = JobState(Plan.of(SPEC)).snapshot()
    del snapshot["form"]
    with Journal(journal_folder(folder)) as journal:
        journal.compact(snapshot if form is None else {**snapshot, "form": form})
        journal.append_many([STOP] * records)
    master = Master(spec=SPEC, folder=folder, platform=platform, token="t", environment={})
    try:
        master.recover()
    finally:
        master._journal.close()
        master._events.close()
    return master.state


@pytest.mark.parametrize("records", [0, 1])
@pytest.mark.parametrize("form", [None, FORM - 1, FORM + 1])
def test_journal_of_another_version_is_refused_and_kept(
    tmp_path: Path, nowhere: Platform, form: int | None, records: int
) -> None:
    with pytest.raises(UserError, match="written by another version") as refused:
        recovered(tmp_path, nowhere, form=form, records=records)
    assert str(journal_folder(tmp_path)) in str(refused.value)
    with Journal(journal_folder(tmp_path)) as journal:
        assert list(journal.read()[1]) == [STOP] * records


@pytest.mark.parametrize("records", [0, 1])
def test_journal_of_this_version_is_replayed(tmp_path: Path, nowhere: Platform, records: int) -> None:
    assert recovered(tmp_path, nowhere, form=FORM, records=records).stopping == ("enough" if records else "")
