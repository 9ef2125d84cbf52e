"""All flags of a job at their places: which section each belongs to, and under which names it goes."""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, dataclass
from typing import Any

from elasticdl.jobs.flags.flag import Flag, JobKind, Topic, flag, flags_of
from elasticdl.jobs.flags.grammar import Text
from elasticdl.jobs.flags.names import JOB_NAME
from elasticdl.jobs.sections.placement import ClusterSection, NodesSection
from elasticdl.jobs.sections.program import DataSection, ModelSection
from elasticdl.jobs.sections.tracking import TrackingSection
from elasticdl.jobs.sections.training import CheckpointSection, EvaluationSection, TrainingSection


@dataclass(frozen=True, kw_only=True)
class Head:
    """The fields of a job that belong to no section."""

    kind: JobKind
    job_name: str = flag(
        Text(metavar="NAME", rule=JOB_NAME),
        "",
        "Name of the job, for `elasticdl jobs` and its pods.",
        topic=Topic.JOB,
        derived="from the model, with a suffix that is new for every job",
    )


SECTIONS: dict[str, type[Any]] = {
    "model": ModelSection,
    "data": DataSection,
    "training": TrainingSection,
    "evaluation": EvaluationSection,
    "checkpoint": CheckpointSection,
    "tracking": TrackingSection,
    "nodes": NodesSection,
    "cluster": ClusterSection,
}


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A flag at its place in a job; `section` is empty for what belongs to the job as a whole."""

    name: str
    section: str
    flag: Flag
    field: dataclasses.Field[Any]

    def default(self) -> Any:
        factory = self.field.default_factory
        return self.field.default if factory is MISSING else factory()


def _leaves() -> dict[str, Leaf]:
    leaves: dict[str, Leaf] = {}
    owners: dict[str, type[Any]] = {"": Head, **SECTIONS}
    for section, owner in owners.items():
        fields = {item.name: item for item in dataclasses.fields(owner)}
        for name, declared in flags_of(owner).items():
            assert name not in leaves, f"two flags are called {name}"
            leaves[name] = Leaf(name=name, section=section, flag=declared, field=fields[name])
    return leaves


# In the order of a job file.
LEAVES: dict[str, Leaf] = _leaves()
# Every word that names a flag, aliases too, and the flag's own name.
NAMES: dict[str, str] = {word: name for name, leaf in LEAVES.items() for word in (name, *leaf.flag.aliases)}


@dataclass(frozen=True, kw_only=True)
class Given:
    """A raw value that was given for a flag, and its location as the user knows it."""

    raw: object
    where: str
