"""The job record: texts by their keys become typed objects, each key by itself."""

from __future__ import annotations

import pytest

from elasticdl.errors import UserError
from elasticdl.jobs.desired import Desired
from elasticdl.jobs.job_record import (
    STATUS_KEY,
    JobRecord,
    desired_entry,
    master_entry,
    new_record,
    snapshot_entry,
    status_entry,
)
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import DesiredResult, JobStatus, RunState, StatusError

SPEC = JobSpec.build(job_name="job", image_name="i", job_command="x", num_workers=2)
STATUS = JobStatus(job="job", state=RunState.RUNNING, observed_generation=2)


def test_new_record_has_the_spec_and_asks_for_nothing() -> None:
    record = JobRecord.of(new_record(SPEC))
    assert record.spec() == SPEC
    assert record.kind == "train"
    assert record.desired() == Desired()
    assert not record.has_status
    assert record.status() == JobStatus()
    assert (record.snapshot, record.master_uid) == (None, "")


def test_entries_that_are_written_are_read_back() -> None:
    desired = Desired(generation=3, nodes={"worker": 4})
    data = {
        **new_record(SPEC),
        **status_entry(STATUS),
        **desired_entry(desired),
        **master_entry("uid"),
        "state.json": snapshot_entry("packed")["state.json"] or "",
    }
    record = JobRecord.of(data)
    assert record.status() == STATUS
    assert record.desired() == desired
    assert (record.snapshot, record.master_uid) == ("packed", "uid")


def test_desired_is_unobserved_until_the_master_reports_its_generation() -> None:
    desired = Desired(generation=3, nodes={"worker": 4})
    waiting = JobRecord.of({**status_entry(STATUS), **desired_entry(desired)})
    assert waiting.unobserved_desired() == desired
    done = JobStatus(job="job", observed_generation=3, desired_result=DesiredResult(error="too many"))
    answered = JobRecord.of({**status_entry(done), **desired_entry(desired)})
    assert answered.unobserved_desired() == Desired(generation=3)
    assert answered.has_observed(3)
    assert not answered.has_observed(4)


def test_damaged_status_leaves_the_other_keys_readable() -> None:
    record = JobRecord.of({**new_record(SPEC), STATUS_KEY: "{"})
    assert record.has_status
    with pytest.raises(StatusError, match="not JSON"):
        record.status()
    assert record.spec() == SPEC
    assert record.desired() == Desired()


def test_record_without_data_says_what_is_missing() -> None:
    record = JobRecord.of(None)
    assert record.kind == ""
    with pytest.raises(UserError, match=r"no spec\.yaml"):
        record.spec()


def test_kind_of_an_unreadable_spec_is_known() -> None:
    assert JobRecord.of({"spec.yaml": "kind: train\nflag_of_the_future: 1\n"}).kind == "train"
