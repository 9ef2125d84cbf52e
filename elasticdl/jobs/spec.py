"""JobSpec: the whole description of a job, and the one way to make it.

Flags, a YAML file and the Python API all end in `JobSpec.assemble`: the same names, the same grammars, the
same defaults, the same checks. It is pure: no clock, no files, no environment. A problem is never reported
alone if there are more; the user gets the whole list.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from elasticdl.errors import UserError
from elasticdl.jobs.flags.flag import KINDS, JobKind, flags_of
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.flags.pairs import BadValue
from elasticdl.jobs.schema import document
from elasticdl.jobs.schema.defaults import derive
from elasticdl.jobs.schema.flag_index import LEAVES, NAMES, SECTIONS, Given, Head
from elasticdl.jobs.sections.env_secrets import references
from elasticdl.jobs.sections.placement import ClusterSection, NodesSection
from elasticdl.jobs.sections.program import DataSection, Framework, ModelSection
from elasticdl.jobs.sections.tracking import TrackingSection
from elasticdl.jobs.sections.training import CheckpointSection, EvaluationSection, TrainingSection
from elasticdl.jobs.validation import problems


@dataclass(frozen=True, kw_only=True)
class JobSpec(Head):
    """A training, evaluation or prediction run. Make it with `build`, which checks it."""

    model: ModelSection = field(default_factory=ModelSection)
    data: DataSection = field(default_factory=DataSection)
    training: TrainingSection = field(default_factory=TrainingSection)
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    checkpoint: CheckpointSection = field(default_factory=CheckpointSection)
    tracking: TrackingSection = field(default_factory=TrackingSection)
    nodes: NodesSection = field(default_factory=NodesSection)
    cluster: ClusterSection = field(default_factory=ClusterSection)

    @property
    def runs_here(self) -> bool:
        """Whether the job runs on this machine, because no image is given."""
        return not self.cluster.image_name

    @property
    def program(self) -> Literal["definition", "command"]:
        return "command" if self.model.job_command else "definition"

    @property
    def framework(self) -> Framework:
        """Whose variables the nodes of a job command get."""
        return self.model.framework(num_ps=self.nodes.num_ps)

    @property
    def addressed(self) -> bool:
        """The nodes of its program know each other by addresses, which belong to places and not to processes."""
        return self.program == "command" and (self.model.need_tf_config or self.nodes.num_ps > 0)

    def values(self) -> dict[str, Any]:
        """Every flag's value by the flag's name."""
        return {
            name: getattr(getattr(self, leaf.section) if leaf.section else self, name)
            for name, leaf in LEAVES.items()
        }

    @classmethod
    def build(cls, *, kind: str = "train", name_suffix: str = "", **flags: object) -> JobSpec:
        """A job from its flags as keyword arguments; None means: not given.

        `name_suffix` keeps apart the names of jobs that are not named.
        """
        given = {name: Given(raw=raw, where=name) for name, raw in flags.items() if raw is not None}
        return cls.assemble(kind=kind, given=given, name_suffix=name_suffix)

    @classmethod
    def assemble(cls, *, kind: str, given: Mapping[str, Given], name_suffix: str = "") -> JobSpec:
        """A job from values of different origin. Raises `UserError` with everything that is wrong."""
        found: list[str] = []
        wrong: set[str] = set()
        if kind not in KINDS:
            guess = did_you_mean(str(kind), KINDS)
            raise UserError(f"{kind!r} is not a kind of job: {', '.join(KINDS)}.{guess}")
        values = {name: leaf.default() for name, leaf in LEAVES.items()}
        read: set[str] = set()
        for word, value in given.items():
            name = NAMES.get(word.replace("-", "_"))
            if name is None:
                found.append(f"{value.where}: there is no flag of that name.{did_you_mean(word, NAMES)}")
                continue
            if name in read:
                found.append(f"{value.where}: {name} is given twice, under different names.")
                continue
            read.add(name)
            try:
                values[name] = LEAVES[name].flag.grammar.parse(value.raw)
            except BadValue as problem:
                wrong.add(name)
                found.append(f"{value.where}: {_sentence(str(problem))}")
        values = derive(values, kind=kind, given=read, name_suffix=name_suffix)
        spec = cls._of(kind, values)
        found += [problem.message for problem in problems(spec) if not wrong.intersection(problem.flags)]
        if found:
            raise _report(found, kind)
        return spec

    @classmethod
    def _of(cls, kind: JobKind, values: Mapping[str, Any]) -> JobSpec:
        sections = {
            name: section(**{leaf: values[leaf] for leaf in flags_of(section)})
            for name, section in SECTIONS.items()
        }
        return cls(kind=kind, job_name=values["job_name"], **sections)


def without_env_values(spec: JobSpec) -> JobSpec:
    """Returns the job with its `envs` as variables from the job's Secret (`sections/env_secrets`)."""
    nodes = spec.nodes
    if not nodes.envs:
        return spec
    secret_envs = {**nodes.secret_envs, **references(spec.job_name, nodes.envs)}
    return dataclasses.replace(spec, nodes=dataclasses.replace(nodes, envs={}, secret_envs=secret_envs))


def to_yaml(spec: JobSpec) -> str:
    """The whole job, every default resolved."""
    return document.write(spec.kind, spec.values())


def from_yaml(text: str, *, source: str = "job file") -> JobSpec:
    """The job that `to_yaml` wrote, or that a person did. Checked as every job is."""
    kind, given = document.read(text, source=source)
    if kind is None:
        raise UserError(f"{source}: the key kind is missing ({', '.join(KINDS)}).")
    return JobSpec.assemble(kind=kind, given=given)


def _report(found: list[str], kind: str) -> UserError:
    hint = f"`elasticdl {kind} --help` explains every flag."
    if len(found) == 1:
        return UserError(found[0], hint=hint)
    lines = "".join(f"\n  - {line}" for line in found)
    return UserError(f"{len(found)} things are wrong with this job:{lines}", hint=hint)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."
