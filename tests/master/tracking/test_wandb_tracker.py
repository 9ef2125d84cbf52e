"""Offline runs of a W&B project, read back with W&B's own reader."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from elasticdl.jobs.spec import JobSpec
from elasticdl.master.tracking.tracker import RunEnd
from elasticdl.master.tracking.tracking import Tracking


def read_records(file: Path) -> list[Any]:
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(file))
    records = []
    while (data := store.scan_data()) is not None:
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        records.append(record)
    return records


def of_kind(records: list[Any], kind: str) -> list[Any]:
    return [getattr(record, kind) for record in records if record.WhichOneof("record_type") == kind]


def history(records: list[Any]) -> list[tuple[int, float]]:
    """Step and loss of each point."""
    lines = [
        {
            item.nested_key[0] if item.nested_key else item.key: json.loads(item.value_json)
            for item in line.item
        }
        for line in of_kind(records, "history")
    ]
    return [(line["global_step"], line["loss"]) for line in lines]


def test_restarted_master_continues_the_run_offline(tmp_path: Path) -> None:
    spec = JobSpec.build(
        job_name="job",
        job_command="python train.py",
        num_workers=3,
        envs="KEY=hunter2",
        wandb_project="project",
    )
    ends = [RunEnd(state="failed", tags={}), RunEnd(state="succeeded", tags={"elasticdl.output": "/model"})]
    # The second begins before where the first has ended: a rollback.
    for steps, end in zip(([0, 1, 2], [1, 2, 3]), ends, strict=True):
        tracking = Tracking.of(spec, key="k", folder=tmp_path)
        tracking.start()
        for step in steps:
            tracking.scalars(step, {"loss": step / 2})
        asyncio.run(tracking.finish(end, timeout_seconds=120))
        assert tracking.report() == (f"W&B project project: wandb sync {tmp_path}/wandb/offline-run-*",)
    found = [read_records(file) for file in sorted(tmp_path.glob("wandb/offline-run-*/*.wandb"))]
    assert [history(records) for records in found] == [
        [(0, 0.0), (1, 0.5), (2, 1.0)],
        [(1, 0.5), (2, 1.0), (3, 1.5)],
    ]
    for records in found:
        (run,) = of_kind(records, "run")
        assert (run.run_id, run.project, run.display_name) == ("k", "project", "job")
        assert ("num_workers", '"3"') in [(entry.key, entry.value_json) for entry in run.config.update]
    assert [of_kind(records, "exit")[0].exit_code for records in found] == [1, 0]
    assert "hunter2" not in repr(found)
