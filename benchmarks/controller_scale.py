"""The cost of the controller's decisions with 1,000 TrainingJobs and 10,000 pods: the engine without an API server.

The documents are JSON texts, as in lists and watches, and parsing them is included. The first plan is that of a
controller that has just been started while all objects exist. Steady state: all masters write their report every two
seconds, and a step runs each second. All figures are processor time.
"""

from __future__ import annotations

import dataclasses
import json
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks.controller_documents import (
    JOBS,
    NOW,
    WORKERS,
    WRITE_SECONDS,
    job_record,
    report,
    running_cluster,
    training_job,
)
from benchmarks.report import Result
from elasticdl.controller.cached_documents import slim_node, slim_pod, slim_record, slim_training_job
from elasticdl.controller.engine import Engine, Step
from elasticdl.controller.reconcile.actions import StartJob, WriteStatus
from elasticdl.jobs.spec import JobSpec

NAME = "controller_scale"
# Every job writes its progress once a minute.
_STEADY_SECONDS = 60
_SLIM: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "Node": slim_node,
    "Pod": slim_pod,
    "ConfigMap": slim_record,
    "TrainingJob": slim_training_job,
}


def run(*, quick: bool, repeat: int) -> list[Result]:
    jobs = 20 if quick else JOBS
    measured = [measure(jobs) for _ in range(1 if quick else min(repeat, 3))]
    size = f"{jobs:,} jobs, {jobs * (WORKERS + 1):,} pods"
    rows = (
        ("first plan of a new controller", "s", "first", 30.0),
        ("one more job → decision", "s", "change", 2.0),
        ("steady, share of a core", "%", "steady", 20.0),
        ("peak memory", "MB", "memory", 500.0),
    )
    found = []
    for case, unit, name, limit in rows:
        value = statistics.median(getattr(each, name) for each in measured)
        found.append(
            Result(
                benchmark=NAME,
                case=f"{case}: {size}",
                unit=unit,
                us=value,
                target=f"< {limit:g} {unit}",
                passed=None if quick else value < limit,
            )
        )
    return found


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    first: float
    change: float
    steady: float
    memory: float


def measure(jobs: int) -> Measured:
    documents, specs = running_cluster(jobs)
    texts = [json.dumps(document) for document in documents]
    engine = Engine()
    begun = time.process_time()
    for text in texts:
        _apply(engine, text)
    step = engine.step(NOW)
    first = time.process_time() - begun
    _settle(engine, step)

    begun = time.process_time()
    _apply(engine, json.dumps(training_job("one-more", 1, 1)))
    step = engine.step(NOW + 1)
    change = time.process_time() - begun
    started = [each for found in step.actions.values() for each in found if isinstance(each, StartJob)]
    assert [each.job.name for each in started] == ["one-more"], started
    steady = _steady(engine, specs)
    return Measured(
        first=first,
        change=change,
        steady=100 * steady,
        memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def _steady(engine: Engine, specs: list[JobSpec]) -> float:
    """Processor seconds per second."""
    writers = round(len(specs) / WRITE_SECONDS)
    records = [job_record(spec, done=1) for spec in specs]
    spent = 0.0
    for second in range(_STEADY_SECONDS):
        chosen = [(second * writers + number) % len(specs) for number in range(writers)]
        texts = []
        for number in chosen:
            data = {**records[number]["data"], **report(specs[number], done=1000 + second)}
            texts.append(json.dumps({**records[number], "data": data}))
        begun = time.process_time()
        for text in texts:
            _apply(engine, text)
        step = engine.step(NOW + 60 + second)
        _settle(engine, step)
        spent += time.process_time() - begun
    return spent / _STEADY_SECONDS


def _settle(engine: Engine, step: Step) -> None:
    """Writes statuses, and feeds them back as the API server would."""
    for job_id, actions in step.actions.items():
        for action in actions:
            if isinstance(action, WriteStatus):
                document = engine.view.jobs[job_id].document
                _apply(engine, json.dumps({**document, "status": action.status.to_document()}))
        engine.carried_out(job_id, actions)


def _apply(engine: Engine, text: str) -> None:
    document = json.loads(text)
    engine.apply(document["kind"], _SLIM[document["kind"]](document))
