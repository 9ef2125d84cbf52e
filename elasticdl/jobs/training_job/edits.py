"""Edits of a TrainingJob that has started: which of them a running job can follow, and which it cannot.

A running job follows a pause, a pinned size, another weight, another time to live, and a range of sizes inside the
one that it was started with: its master keeps to that one. Everything else is in pods that exist already. The
admission webhook refuses such edits; without the webhook the controller reports them, and the job goes on as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from elasticdl.jobs.spec import JobSpec, without_env_values
from elasticdl.jobs.training_job.fields import fields_of
from elasticdl.jobs.training_job.job_document import job_document
from elasticdl.jobs.training_job.parsing import FieldProblem
from elasticdl.jobs.training_job.resource import PserverSpec, TrainerSpec, TrainingJobSpec

_FIXED = "cannot be changed once the job has started: its pods keep what they were created with. Create another job."
# Attributes that a running job follows; `fault_tolerant` says only whether the range may be one.
_FOLLOWED = ("suspend", "weight", "ttl_seconds_after_finished", "fault_tolerant")
_RANGE = ("min_instance", "max_instance")
_FOLLOWED_OF_TRAINER = ("replicas", *_RANGE)
# Of `job`: sizes, which are compared as the ranges of trainer and pserver.
_SIZES = {
    "nodes": ("num_workers", "min_workers", "max_workers", "num_ps", "min_ps", "max_ps"),
}


def unapplied_edits(started: TrainingJobSpec, edited: TrainingJobSpec) -> tuple[FieldProblem, ...]:
    """Returns what a running job cannot follow, with the reasons. Both as `parse_training_job` reads them."""
    return tuple(_differences(started, edited))


def followed(started: TrainingJobSpec, edited: TrainingJobSpec) -> TrainingJobSpec:
    """Returns what the job is started with, with those of the edits that a running job follows."""
    changes: dict[str, Any] = {name: getattr(edited, name) for name in _FOLLOWED}
    trainer = replace(_in_range(started.trainer, edited.trainer), replicas=edited.trainer.replicas)
    return replace(started, **changes, trainer=trainer, pserver=_in_range(started.pserver, edited.pserver))


_Role = TypeVar("_Role", TrainerSpec, PserverSpec)


def _in_range(started: _Role, edited: _Role) -> _Role:
    least, most = started.min_instance, started.max_instance
    low = min(max(edited.min_instance, least), most)
    high = min(max(edited.max_instance, low), most)
    return replace(started, min_instance=low, max_instance=high)


def _differences(started: TrainingJobSpec, edited: TrainingJobSpec) -> Iterator[FieldProblem]:
    has_job = started.job is not None and edited.job is not None
    for name, item in fields_of(TrainingJobSpec).items():
        path = f"spec.{item.key}"
        before, after = getattr(started, name), getattr(edited, name)
        if name in _FOLLOWED or before == after:
            continue
        if name == "trainer":
            yield from _role(path, before, after, followed=_FOLLOWED_OF_TRAINER, has_job=has_job)
        elif name == "pserver":
            yield from _role(path, before, after, followed=_RANGE, has_job=has_job)
        elif name == "job" and has_job:
            yield from _job(path, before, after)
        elif name == "master" and has_job:
            # Its resources are those of the job, and compared there.
            continue
        else:
            yield FieldProblem(path=path, sentence=_FIXED)


def _role(
    path: str,
    before: TrainerSpec | PserverSpec,
    after: TrainerSpec | PserverSpec,
    *,
    followed: tuple[str, ...],
    has_job: bool,
) -> Iterator[FieldProblem]:
    for name, item in fields_of(type(before)).items():
        if name in followed or (has_job and name == "resources"):
            continue
        if getattr(before, name) != getattr(after, name):
            yield FieldProblem(path=f"{path}.{item.key}", sentence=_FIXED)
    role = "workers" if isinstance(before, TrainerSpec) else "ps"
    low, high = ("min-instance", "max-instance")
    if has_job:
        path, low, high = "spec.job.nodes", f"min_{role}", f"max_{role}"
    if after.min_instance < before.min_instance:
        yield _outside(f"{path}.{low}", after.min_instance, "less", before.min_instance)
    if after.max_instance > before.max_instance:
        yield _outside(f"{path}.{high}", after.max_instance, "more", before.max_instance)


def _outside(path: str, size: int, word: str, limit: int) -> FieldProblem:
    return FieldProblem(
        path=path,
        sentence=f"{size} is {word} than {limit}, with which the job was started: its master keeps to that range. "
        "A smaller range is possible.",
    )


def _job(path: str, before: JobSpec, after: JobSpec) -> Iterator[FieldProblem]:
    # The values of variables are not kept with what a job was started from, so only their names are compared.
    started = without_env_values(before)
    old, new = job_document(started), job_document(_with_secrets_of(started, after))
    for section in sorted(old.keys() | new.keys()):
        one, other = old.get(section), new.get(section)
        if isinstance(one or other, Mapping):
            one, other = one or {}, other or {}
            for name in sorted(one.keys() | other.keys()):
                if one.get(name) != other.get(name) and name not in _SIZES.get(section, ()):
                    yield FieldProblem(path=f"{path}.{section}.{name}", sentence=_FIXED)
        elif one != other:
            yield FieldProblem(path=f"{path}.{section}", sentence=_FIXED)


def _with_secrets_of(started: JobSpec, edited: JobSpec) -> JobSpec:
    """Returns the edited job without the values of its `envs`: in the Secret that the started job has them in."""
    hidden = without_env_values(edited)
    kept = {name: started.nodes.secret_envs.get(name) for name in edited.nodes.envs}
    secret_envs = {**hidden.nodes.secret_envs, **{name: text for name, text in kept.items() if text}}
    return replace(hidden, nodes=replace(hidden.nodes, secret_envs=secret_envs))
