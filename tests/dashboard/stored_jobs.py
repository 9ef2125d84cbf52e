"""Jobs as they are on disk: folders with a spec, a record, a status, a history and logs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from elasticdl.jobs.history.entries import Entry, EventKind, JobEvent, NodeChange, NodeState, Sample, to_line
from elasticdl.jobs.job_folder import JobFolder, RecordedState
from elasticdl.jobs.job_store import JobStore
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.status import JobStatus

# Of the newest job; older ones began seconds before.
NOW = 1_700_000_000.0


def spec_of(name: str, **flags: Any) -> JobSpec:
    return JobSpec.build(
        job_name=name,
        model_zoo="zoo",
        model_def="m.custom_model",
        training_data="data",
        num_workers=2,
        **flags,
    )


def status_of(name: str, **more: Any) -> JobStatus:
    document: dict[str, Any] = {
        "job": name,
        "kind": "train",
        "program": "definition",
        "state": "succeeded",
        "phase": "succeeded",
        "now": NOW,
        "started": NOW - 60,
        "dataset": "training",
        "size": 100,
        "epochs": 2,
        "epoch": 1,
        "samples_done": 200,
        "samples_total": 200,
        "step": 20,
        "loss": 0.25,
        "losses": [[step, 1.0 / step] for step in range(1, 21)],
        "evaluations": [{"step": 20, "epoch": 1, "metrics": {"accuracy": 0.9, "loss": 0.3}}],
        "targets": {"worker": 2},
        "nodes": [
            {"name": "worker-0", "role": "worker", "phase": "succeeded", "reason": "completed"},
            {
                "name": "worker-1",
                "role": "worker",
                "phase": "failed",
                "reason": "killed",
                "message": "SIGKILL",
            },
        ],
        "audit": {"rows": [], "skipped": [], "exact": True, "reason": ""},
    }
    return JobStatus.from_json({**document, **more})


def history_of(count: int = 5) -> list[Entry]:
    entries: list[Entry] = [JobEvent(time=NOW - 60, event=EventKind.STATE, text="The job has started.")]
    for number in range(2):
        entries += [
            NodeChange(time=NOW - 60, node=f"worker-{number}", role="worker", state=NodeState.PENDING),
            NodeChange(time=NOW - 58, node=f"worker-{number}", role="worker", state=NodeState.WORKING),
        ]
    entries += [
        Sample(
            time=NOW - 50 + i,
            step=i,
            samples_done=10 * i,
            ready_workers=2,
            desired_workers=2,
            loss=1 / (i + 1),
        )
        for i in range(count)
    ]
    return entries


def store_job(
    home: Path,
    name: str,
    *,
    state: RecordedState = "succeeded",
    message: str = "",
    age: float = 0.0,
    logs: Iterable[str] = ("2023-11-14 22:13:20,000 INFO first", "second"),
    **more: Any,
) -> JobFolder:
    """Creates a job that has ended."""
    store = JobStore(home)
    folder = store.create(spec_of(name), now=NOW - 60 - age)
    folder.status_path.write_text(status_of(name, state=state, message=message, **more).to_text())
    folder.history_path.write_text("".join(map(to_line, history_of())))
    folder.log_path("worker-0").write_text("".join(f"{line}\n" for line in logs))
    folder.finish(state, message=message, now=NOW - age)
    folder.release()
    return folder
