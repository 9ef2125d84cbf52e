"""Documents to TrainingJobs, with everything that is wrong named at once.

The admission webhook and the controller call the same function, so that a cluster without the webhook reports the same
sentences in the job's status.

An API server drops fields that the schema of our group does not have (`crd` says why). Those that `kubectl apply` sent
are in the annotation that it leaves, and are named from there.

Failure modes
    `InvalidTrainingJob` with all problems, each with the path of its field. A document without a name or namespace is
    no object of a cluster; the problem says so.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from elasticdl.errors import UserError
from elasticdl.jobs.flags.names import DNS_NAME, IMAGE, JOB_NAME
from elasticdl.jobs.flags.nearest import nearest
from elasticdl.jobs.flags.pairs import BadValue
from elasticdl.jobs.sections.resources import GPU, Resources, ResourcesGrammar
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.training_job.fields import Field, FieldKind, fields_of
from elasticdl.jobs.training_job.job_document import read_job_document
from elasticdl.jobs.training_job.resource import (
    API_VERSIONS,
    KIND,
    PserverSpec,
    RoleResources,
    TrainingJob,
    TrainingJobSpec,
)

# As documents of PaddlePaddle EDL call it.
_OLD_GPU = "alpha.kubernetes.io/nvidia-gpu"
# Fields that a document with `job` cannot have as well: the job has them.
_OF_PROGRAM = ("image", "passes")
_OF_TRAINER = ("entrypoint", "workspace", "passes", "min-instance", "max-instance", "resources")
_UNKNOWN_FIELD = "there is no such field."
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, kw_only=True)
class FieldProblem:
    """The problem of one field. `nearest`: the valid name most like an unknown one."""

    path: str
    sentence: str
    nearest: str = ""

    def __str__(self) -> str:
        guess = f" Did you mean {self.nearest}?" if self.nearest else ""
        return f"{self.path}: {self.sentence}{guess}"


class InvalidTrainingJob(UserError):
    """A TrainingJob that cannot be run as it is written."""

    def __init__(self, problems: Iterable[FieldProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def parse_training_job(document: Mapping[str, Any]) -> TrainingJob:
    """Returns the TrainingJob of a document of the API server. Raises `InvalidTrainingJob`."""
    metadata = _mapping(document.get("metadata"))
    reader = _Reader(takes_aliases=document.get("apiVersion") == API_VERSIONS[1])
    _check_head(document, metadata, reader)
    raw = document.get("spec")
    if not isinstance(raw, Mapping):
        reader.problem("spec", "is missing: it says what to run.")
        raise InvalidTrainingJob(reader.problems)
    spec = reader.read(TrainingJobSpec, raw, "spec")
    spec = _with_default_requests(_with_job(spec, raw, str(metadata.get("name", "")), reader))
    _check_spec(spec, raw, reader)
    _check_applied(metadata, reader)
    if reader.problems:
        raise InvalidTrainingJob(reader.problems)
    if spec.job is None:
        # Its framework knows the addresses of these servers: they are not scaled.
        servers = replace(spec.pserver, max_instance=spec.pserver.min_instance)
        spec = replace(spec, pserver=servers)
    return replace(training_job_head(document), spec=spec)


def training_job_warnings(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns what is valid and has another effect than its user may expect, a sentence each. Never raises."""
    spec = _mapping(document.get("spec"))
    trainer, pserver = _mapping(spec.get("trainer")), _mapping(spec.get("pserver"))
    found = []
    low, high = _int(pserver.get("min-instance")), _int(pserver.get("max-instance"))
    if "job" not in spec and high > low:
        found.append(
            f"spec.pserver: the parameter servers of a program of your own are not scaled; there will be {low}."
        )
    try:
        parsed = parse_training_job(document).spec.trainer
    except InvalidTrainingJob:
        return tuple(found)
    if parsed.pinned is not None and parsed.pinned != parsed.replicas:
        found.append(
            f"spec.trainer.replicas: {parsed.replicas} is outside of {parsed.min_instance} to "
            f"{parsed.max_instance}; the job gets {parsed.pinned}."
        )
    if _mapping(spec.get("master")).get("etcd-endpoint"):
        found.append("spec.master.etcd-endpoint is not used: the master keeps its own journal.")
    if trainer.get("replicas") and parsed.pinned:
        found.append("spec.trainer.replicas is set: the controller does not scale this job. 0 lets it.")
    return tuple(found)


def training_job_head(document: Mapping[str, Any]) -> TrainingJob:
    """Returns the object without its spec: what is known of one whose spec is invalid. Never raises."""
    metadata = _mapping(document.get("metadata"))
    deleted = metadata.get("deletionTimestamp")
    return TrainingJob(
        namespace=str(metadata.get("namespace") or "default"),
        name=str(metadata.get("name") or ""),
        uid=str(metadata.get("uid") or ""),
        api_version=str(document.get("apiVersion") or API_VERSIONS[0]),
        generation=_int(metadata.get("generation")),
        resource_version=str(metadata.get("resourceVersion") or ""),
        created_seconds=_seconds(metadata.get("creationTimestamp")) or 0.0,
        deleted_seconds=_seconds(deleted),
        labels=_texts(metadata.get("labels")),
        annotations=_texts(metadata.get("annotations")),
        finalizers=tuple(str(item) for item in metadata.get("finalizers") or ()),
        status=_mapping(document.get("status")),
    )


def _check_head(document: Mapping[str, Any], metadata: Mapping[str, Any], reader: _Reader) -> None:
    if document.get("kind") != KIND:
        reader.problem("kind", f"{document.get('kind')!r} is not {KIND}.")
    if document.get("apiVersion") not in API_VERSIONS:
        reader.problem(
            "apiVersion", f"{document.get('apiVersion')!r} is not one of {', '.join(API_VERSIONS)}."
        )
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        # A name that the API server makes of generateName has passed its own rules; it ends with random letters.
        if not metadata.get("generateName"):
            reader.problem("metadata.name", "is missing: it names the job and its pods.")
        return
    try:
        JOB_NAME.check(name)
    except BadValue as problem:
        reader.problem("metadata.name", f"{problem}. It becomes part of the names of pods.")


def _check_applied(metadata: Mapping[str, Any], reader: _Reader) -> None:
    """Names unknown fields that the API server has dropped, where `kubectl apply` has kept the document."""
    text = _mapping(metadata.get("annotations")).get(_LAST_APPLIED)
    try:
        applied = _mapping(json.loads(text)) if isinstance(text, str) else {}
    except ValueError:
        return
    spec = applied.get("spec")
    if not isinstance(spec, Mapping):
        return
    other = _Reader(takes_aliases=applied.get("apiVersion") == API_VERSIONS[1])
    other.read(TrainingJobSpec, spec, "spec")
    known = reader.paths
    reader.problems += [
        problem
        for problem in other.problems
        if problem.sentence == _UNKNOWN_FIELD and problem.path not in known
    ]


class _Reader:
    """Reads sections by their field descriptions and collects what is wrong with them."""

    def __init__(self, *, takes_aliases: bool) -> None:
        self.problems: list[FieldProblem] = []
        self._takes_aliases = takes_aliases

    def problem(self, path: str, sentence: str, *, nearest: str = "") -> None:
        self.problems.append(FieldProblem(path=path, sentence=sentence, nearest=nearest))

    @property
    def paths(self) -> set[str]:
        return {problem.path for problem in self.problems}

    def read(self, section: type[Any], raw: Mapping[str, Any], path: str) -> Any:
        described = fields_of(section)
        names = {
            key: name
            for name, item in described.items()
            for key in (item.key, *(item.aliases if self._takes_aliases else ()))
        }
        given: dict[str, Any] = {}
        for key, value in raw.items():
            name = names.get(str(key))
            if name is None:
                keys = [item.key for item in described.values()]
                self.problem(
                    f"{path}.{key}", "there is no such field.", nearest=nearest(str(key), keys) or ""
                )
            elif name in given:
                self.problem(f"{path}.{key}", f"{described[name].key} is given twice.")
            elif value is not None:
                found = self._value(described[name], value, f"{path}.{key}")
                if found is not None:
                    given[name] = found
        return section(**given)

    def _value(self, item: Field, value: object, path: str) -> Any:
        """Returns None after a problem."""
        kind = item.kind
        if kind is FieldKind.SECTION:
            assert item.section is not None
            if isinstance(value, Mapping):
                return self.read(item.section, value, path)
        elif kind is FieldKind.JOB:
            if isinstance(value, Mapping):
                return self._job(value, path)
        elif kind is FieldKind.QUANTITIES:
            if isinstance(value, Mapping):
                return self._quantities(value, path)
        elif kind is FieldKind.OBJECTS:
            if isinstance(value, (list, tuple)) and all(isinstance(entry, Mapping) for entry in value):
                return tuple(dict(entry) for entry in value)
        elif kind is FieldKind.TEXTS:
            if isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values()):
                return {str(key): text for key, text in value.items()}
        elif kind is FieldKind.TEXT:
            if isinstance(value, str):
                return value
        elif kind is FieldKind.BOOLEAN:
            if isinstance(value, bool):
                return value
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            if kind is FieldKind.NUMBER:
                return float(value)
            if math.isfinite(value) and int(value) == value:
                return self._integer(item, int(value), path)
        self.problem(path, f"{_shortly(value)} is not {kind.value}.")
        return None

    def _integer(self, item: Field, value: int, path: str) -> int | None:
        if item.minimum is not None and value < item.minimum:
            self.problem(path, f"{value} is less than {item.minimum}.")
        elif item.maximum is not None and value > item.maximum:
            self.problem(path, f"{value} is more than {item.maximum}.")
        else:
            return value
        return None

    def _quantities(self, value: Mapping[str, Any], path: str) -> Resources | None:
        given: dict[str, Any] = {}
        for name, amount in value.items():
            known = GPU if name == _OLD_GPU else str(name)
            try:
                ResourcesGrammar().parse({known: amount})
            except BadValue as problem:
                self.problem(f"{path}.{name}", _sentence(str(problem).removeprefix(f"{known}: ")))
                continue
            if known in given:
                self.problem(f"{path}.{name}", f"{known} is given twice.")
            given[known] = amount
        return ResourcesGrammar().parse(given)

    def _job(self, value: Mapping[str, Any], path: str) -> JobSpec | None:
        spec, problems = read_job_document(value, path=path)
        for where, sentence, guess in problems:
            self.problem(where, sentence, nearest=guess)
        return spec


# -- what must hold between fields --------------------------------------------------------------------------------


def _with_job(spec: TrainingJobSpec, raw: Mapping[str, Any], name: str, reader: _Reader) -> TrainingJobSpec:
    """Returns the spec with the sizes and resources of its job, and checks that nothing is said twice."""
    if "job" not in raw:
        return spec
    trainer, pserver = _mapping(raw.get("trainer")), _mapping(raw.get("pserver"))
    for key in _OF_PROGRAM:
        if raw.get(key):
            reader.problem(f"spec.{key}", "spec.job says what to run: say it there.")
    for key in _OF_TRAINER:
        if trainer.get(key):
            reader.problem(f"spec.trainer.{key}", "spec.job describes the workers: say it there.")
    for key in ("min-instance", "max-instance", "resources"):
        if pserver.get(key):
            reader.problem(f"spec.pserver.{key}", "spec.job describes the parameter servers: say it there.")
    job = spec.job
    if job is None:
        return spec
    if job.job_name and _mapping(raw["job"]).get("job_name") and job.job_name != name:
        reader.problem(
            "spec.job.job_name", f"{job.job_name!r} is not the name of this object, {name!r}: omit it."
        )
    nodes = job.nodes
    least, most = nodes.range_of("worker")
    fewest, greatest = nodes.range_of("ps")
    # A job without bounds has the size that it was given.
    fixed = most is None
    return replace(
        spec,
        fault_tolerant=True,
        trainer=replace(
            spec.trainer,
            min_instance=nodes.num_workers if fixed else max(least, 1),
            max_instance=nodes.num_workers if most is None else most,
            resources=_role_resources(job, "worker"),
        ),
        pserver=PserverSpec(
            min_instance=nodes.num_ps if greatest is None or not nodes.num_ps else max(fewest, 1),
            max_instance=nodes.num_ps if greatest is None or not nodes.num_ps else greatest,
            resources=_role_resources(job, "ps"),
        ),
        master=replace(spec.master, resources=_role_resources(job, "master")),
    )


def _with_default_requests(spec: TrainingJobSpec) -> TrainingJobSpec:
    """Returns the spec with requests that are not said taken from limits, as Kubernetes does."""
    if spec.job is not None:
        return spec
    return replace(
        spec,
        trainer=replace(spec.trainer, resources=_defaulted(spec.trainer.resources)),
        pserver=replace(spec.pserver, resources=_defaulted(spec.pserver.resources)),
        master=replace(spec.master, resources=_defaulted(spec.master.resources)),
    )


def _defaulted(resources: RoleResources) -> RoleResources:
    both = {**resources.limits.by_name(), **resources.requests.by_name()}
    requests = ResourcesGrammar().parse({name: quantity.text for name, quantity in both.items()})
    return replace(resources, requests=requests)


def _role_resources(job: JobSpec, role: str) -> RoleResources:
    return RoleResources(requests=job.nodes.resource_request(role), limits=job.nodes.resource_limit(role))


def _check_spec(spec: TrainingJobSpec, raw: Mapping[str, Any], reader: _Reader) -> None:
    # A field that is wrong already says nothing about others.
    wrong = reader.paths
    for problem in _between_fields(spec, raw):
        if not any(path.startswith(problem.path) or problem.path.startswith(path) for path in wrong):
            reader.problems.append(problem)


def _between_fields(spec: TrainingJobSpec, raw: Mapping[str, Any]) -> Iterator[FieldProblem]:
    if spec.job is None and "job" not in raw:
        yield from _program(spec)
    elif spec.job is not None:
        yield from _whole_job(spec.job)
    yield from _sizes(spec)
    yield from _resources(spec, "job" in raw)
    if spec.weight <= 0 or spec.weight != spec.weight or spec.weight == float("inf"):
        yield _problem("spec.weight", f"{spec.weight} is not a finite number above 0.")
    if spec.priority_class_name:
        yield from _checked(DNS_NAME, "spec.priorityClassName", spec.priority_class_name)
    yield from _entries("volumes", spec.volumes, "name")
    yield from _entries("imagePullSecrets", spec.image_pull_secrets, "name")
    yield from _mounts(spec)


def _program(spec: TrainingJobSpec) -> Iterator[FieldProblem]:
    if not spec.image:
        yield _problem("spec.image", "is missing: the image that trainers run (or spec.job, a whole job).")
    else:
        yield from _checked(IMAGE, "spec.image", spec.image)
    if not spec.trainer.entrypoint.strip():
        yield _problem(
            "spec.trainer.entrypoint", "is missing: the command that trainers run (or spec.job, a whole job)."
        )
    if spec.trainer.workspace and not spec.trainer.workspace.startswith("/"):
        yield _problem("spec.trainer.workspace", f"{spec.trainer.workspace!r} is not an absolute path.")
    if spec.passes and spec.trainer.passes and spec.passes != spec.trainer.passes:
        yield _problem(
            "spec.trainer.passes", f"{spec.trainer.passes} differs from spec.passes, {spec.passes}: omit one."
        )
    last = spec.port + spec.ports_num + spec.ports_num_for_sparse - 1
    if last > 65535:
        yield _problem("spec.port", f"{spec.port} and the ports after it go up to {last}; the last is 65535.")


def _whole_job(job: JobSpec) -> Iterator[FieldProblem]:
    if job.kind != "train":
        yield _problem("spec.job.kind", f"{job.kind!r} cannot be a TrainingJob; only train can.")
    if not job.cluster.image_name:
        yield _problem("spec.job.cluster.image_name", "is missing: the image of the job's pods.")
    if job.cluster.job_account:
        yield _problem(
            "spec.job.cluster.job_account", "is not possible here: the controller may not make Roles."
        )


def _sizes(spec: TrainingJobSpec) -> Iterator[FieldProblem]:
    needs_tolerance = False
    for path, low, high in (
        ("spec.trainer", spec.trainer.min_instance, spec.trainer.max_instance),
        ("spec.pserver", spec.pserver.min_instance, spec.pserver.max_instance),
    ):
        if low > high:
            yield _problem(f"{path}.min-instance", f"{low} is more than max-instance, {high}.")
        elif low < high and not spec.fault_tolerant and not needs_tolerance:
            needs_tolerance = True
            yield _problem(
                "spec.fault_tolerant",
                f"must be true where instances come and go: {path}.min-instance is {low} and max-instance {high}. Set "
                "it if the program takes its data from the master; otherwise make both numbers equal.",
            )
    if spec.trainer.min_instance < 1:
        yield _problem("spec.trainer.min-instance", "0 trainers train nothing: use 1 or more.")
    if spec.pserver.max_instance and not spec.pserver.min_instance:
        yield _problem(
            "spec.pserver.min-instance", "a job with parameter servers needs at least 1 all the time."
        )


def _resources(spec: TrainingJobSpec, has_job: bool) -> Iterator[FieldProblem]:
    for role, flag, elastic, part in (
        ("trainer", "worker", spec.trainer.is_elastic, spec.trainer.resources),
        ("pserver", "ps", spec.pserver.is_elastic, spec.pserver.resources),
        ("master", "master", False, spec.master.resources),
    ):
        path = f"spec.job.nodes.{flag}_resource_request" if has_job else f"spec.{role}.resources.requests"
        if elastic:
            missing = [name for name in ("cpu", "memory") if getattr(part.requests, name) is None]
            if missing:
                yield _problem(
                    path,
                    f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: what is scaled must say "
                    "what each instance takes of a machine.",
                )
        if not has_job:
            for line in part.requests.beyond(part.limits):
                yield _problem(path, f"{line}.")


def _entries(key: str, entries: Iterable[Mapping[str, Any]], name: str) -> Iterator[FieldProblem]:
    seen = set()
    for index, entry in enumerate(entries):
        value = entry.get(name)
        if not isinstance(value, str) or not value:
            yield _problem(f"spec.{key}[{index}].{name}", "is missing.")
        elif value in seen:
            yield _problem(f"spec.{key}[{index}].{name}", f"{value!r} is there twice.")
        else:
            seen.add(value)


def _mounts(spec: TrainingJobSpec) -> Iterator[FieldProblem]:
    names = [str(volume.get("name")) for volume in spec.volumes]
    for index, mount in enumerate(spec.volume_mounts):
        path = f"spec.volumeMounts[{index}]"
        where, name = mount.get("mountPath"), mount.get("name")
        if not isinstance(where, str) or not where.startswith("/"):
            yield _problem(f"{path}.mountPath", f"{where!r} is not an absolute path.")
        if name not in names:
            yield FieldProblem(
                path=f"{path}.name",
                sentence=f"{name!r} is not one of spec.volumes ({', '.join(names) or 'there are none'}).",
                nearest=nearest(str(name), names) or "",
            )


def _checked(rule: Any, path: str, value: str) -> Iterator[FieldProblem]:
    try:
        rule.check(value)
    except BadValue as problem:
        yield _problem(path, _sentence(str(problem)))


def _problem(path: str, sentence: str) -> FieldProblem:
    return FieldProblem(path=path, sentence=sentence)


# -- plain values ----------------------------------------------------------------------------------------------------


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _texts(value: object) -> dict[str, str]:
    return {str(key): str(text) for key, text in _mapping(value).items()}


def _int(value: object) -> int:
    return value if isinstance(value, int) else 0


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def _seconds(value: object) -> float | None:
    """Returns a time of the API server in seconds since 1970."""
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        return None
    return datetime.datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()


def _shortly(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."
