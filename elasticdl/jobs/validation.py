"""Validates flags of a job against each other. The grammar of each flag validates its own value.

A check says which flags it is about, so that it can keep quiet where one of them is known to be wrong.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from elasticdl.jobs.flags.flag import JobKind
from elasticdl.jobs.flags.grammar import is_url
from elasticdl.jobs.flags.pairs import BadValue
from elasticdl.jobs.sections import reserved
from elasticdl.jobs.sections.placement import ROLES, ClusterSection, NodesSection
from elasticdl.jobs.sections.pod_fields import parse_pod_fields
from elasticdl.jobs.sections.program import DataSection, ModelSection
from elasticdl.jobs.sections.tracking import TrackingSection
from elasticdl.jobs.sections.training import (
    ALLREDUCE,
    LOCAL,
    PARAMETER_SERVER,
    CheckpointSection,
    EvaluationSection,
    TrainingSection,
)


class Sections(Protocol):
    """The sections of a job that are validated. `JobSpec` is one, and is not imported, since it imports this."""

    @property
    def kind(self) -> JobKind: ...
    @property
    def model(self) -> ModelSection: ...
    @property
    def data(self) -> DataSection: ...
    @property
    def training(self) -> TrainingSection: ...
    @property
    def evaluation(self) -> EvaluationSection: ...
    @property
    def checkpoint(self) -> CheckpointSection: ...
    @property
    def tracking(self) -> TrackingSection: ...
    @property
    def nodes(self) -> NodesSection: ...
    @property
    def cluster(self) -> ClusterSection: ...


@dataclass(frozen=True, kw_only=True)
class Problem:
    flags: tuple[str, ...]
    message: str


def problems(spec: Sections) -> Iterator[Problem]:
    """Everything that is wrong with a job whose single flags are all right."""
    yield from _required(spec)
    yield from _program(spec)
    yield from _ranges(spec)
    yield from _strategy(spec)
    yield from _schedule(spec)
    yield from _resources(spec)
    yield from _hosts(spec)
    yield from _cluster(spec)


def _problem(*flags: str, because: str) -> Problem:
    return Problem(flags=flags, message=because)


def _required(spec: Sections) -> Iterator[Problem]:
    needed = {}
    if not spec.model.job_command:
        needed["model_zoo"] = (spec.model.model_zoo, "the folder with the model definition")
        needed["model_def"] = (spec.model.model_def, "the model in it, as folder.module.function")
        if spec.kind == "train":
            needed["training_data"] = (spec.data.training_data, "the data to train on")
    if spec.kind == "evaluate":
        needed["validation_data"] = (spec.data.validation_data, "the data to evaluate on")
    if spec.kind == "predict":
        needed["prediction_data"] = (spec.data.prediction_data, "the data to make predictions for")
    if spec.kind != "train":
        needed["checkpoint_dir_for_init"] = (
            spec.checkpoint.checkpoint_dir_for_init,
            "the checkpoint or exported model to take the parameters from",
        )
    for name, (value, meaning) in needed.items():
        if not value:
            yield _problem(name, "job_command", because=f"--{name} is missing: {meaning}.")


def _program(spec: Sections) -> Iterator[Problem]:
    if spec.model.job_command:
        if not spec.model.job_command.strip():
            yield _problem("job_command", because="--job_command is blank: there is nothing to run.")
        if spec.kind != "train":
            yield _problem(
                "job_command", because=f"--job_command has no meaning for {spec.kind}, only for train."
            )
        if spec.model.model_def:
            yield _problem(
                "job_command",
                "model_def",
                because="--job_command and --model_def exclude each other: give one.",
            )
        if spec.nodes.num_workers + spec.nodes.num_chief < 1:
            yield _problem(
                "num_workers", "num_chief", because="--num_workers=0 without a chief: no node would train."
            )
        return
    if spec.nodes.num_workers < 1:
        yield _problem("num_workers", "job_command", because="--num_workers must be at least 1.")
    for name, value in (
        ("num_chief", spec.nodes.num_chief > 0),
        ("num_evaluator", spec.nodes.num_evaluator > 0),
        ("need_tf_config", spec.model.need_tf_config),
    ):
        if value:
            yield _problem(
                name,
                "job_command",
                because=f"--{name} has a meaning only with --job_command, which is not given.",
            )


def _ranges(spec: Sections) -> Iterator[Problem]:
    """The counts of nodes that a job may be scaled to."""
    for role, name in (("worker", "workers"), ("ps", "ps")):
        low, high = spec.nodes.range_of(role)
        flags = (f"min_{name}", f"num_{name}", f"max_{name}")
        count = spec.nodes.num_workers if role == "worker" else spec.nodes.num_ps
        if high is not None and low > high:
            yield _problem(
                flags[0], flags[2], because=f"--{flags[0]}={low} is more than --{flags[2]}={high}."
            )
        elif count < low:
            yield _problem(*flags[:2], because=f"--{flags[1]}={count} is less than --{flags[0]}={low}.")
        elif high is not None and count > high:
            yield _problem(*flags[1:], because=f"--{flags[1]}={count} is more than --{flags[2]}={high}.")
    low, high = spec.nodes.range_of("ps")
    if high is not None and spec.nodes.num_ps < 1:
        yield _problem(
            "max_ps",
            "num_ps",
            "distribution_strategy",
            because="--max_ps has a meaning only for a job with parameter servers: add --num_ps, or omit it.",
        )
    if spec.model.job_command and (low or high) and (low, high) != (spec.nodes.num_ps,) * 2:
        yield _problem(
            "min_ps",
            "max_ps",
            "num_ps",
            "job_command",
            because="The parameter servers of a --job_command cannot be scaled, since its framework knows their"
            " addresses: omit --min_ps and --max_ps.",
        )


def _strategy(spec: Sections) -> Iterator[Problem]:
    strategy, nodes, training = spec.training.distribution_strategy, spec.nodes, spec.training
    if strategy == LOCAL and nodes.num_workers > 1 and not spec.model.job_command:
        yield _problem(
            "distribution_strategy",
            "num_workers",
            because=f"--distribution_strategy=Local is for one worker, and --num_workers is"
            f" {nodes.num_workers}: leave the strategy out, or name another one.",
        )
    if strategy == LOCAL and nodes.num_workers <= 1 < nodes.max_workers and not spec.model.job_command:
        yield _problem(
            "distribution_strategy",
            "max_workers",
            because="--distribution_strategy=Local is for one worker, and --max_workers is"
            f" {nodes.max_workers}: omit the strategy, or name another one.",
        )
    if strategy in (LOCAL, ALLREDUCE) and nodes.num_ps > 0:
        yield _problem(
            "distribution_strategy",
            "num_ps",
            because=f"--distribution_strategy={strategy} has no parameter servers,"
            f" and --num_ps is {nodes.num_ps}.",
        )
    if strategy == PARAMETER_SERVER and nodes.num_ps < 1:
        yield _problem(
            "distribution_strategy", "num_ps", because=f"{PARAMETER_SERVER} needs --num_ps of at least 1."
        )
    if training.max_bad_gradients > 0 and nodes.num_ps < 1 and spec.model.job_command:
        yield _problem(
            "max_bad_gradients",
            "job_command",
            because="--max_bad_gradients is for model definitions and parameter servers: a program without servers"
            " applies its gradients itself. Omit it.",
        )
    if training.use_async and training.grads_to_wait > 1:
        yield _problem(
            "use_async",
            "grads_to_wait",
            because="--use_async=true waits for no other gradients, and --grads_to_wait is"
            f" {training.grads_to_wait}: leave one of them out.",
        )
    if training.asynchronous and training.sync_version_tolerance > 0:
        yield _problem(
            "use_async",
            "grads_to_wait",
            "sync_version_tolerance",
            because="--sync_version_tolerance has a meaning only in synchronous training:"
            " add --use_async=false, or leave it out.",
        )


def _schedule(spec: Sections) -> Iterator[Problem]:
    if spec.kind != "train":
        return
    if spec.checkpoint.checkpoint_steps > 0 and not spec.checkpoint.checkpoint_dir:
        yield _problem(
            "checkpoint_steps",
            "checkpoint_dir",
            because="--checkpoint_steps needs --checkpoint_dir, the folder that checkpoints go to.",
        )
    if spec.evaluation.evaluation_steps > 0 and not spec.data.validation_data and not spec.model.job_command:
        yield _problem(
            "evaluation_steps",
            "validation_data",
            "job_command",
            because="--evaluation_steps needs --validation_data, the data to evaluate on.",
        )


def _resources(spec: Sections) -> Iterator[Problem]:
    for role in ROLES:
        names = (f"{role}_resource_request", f"{role}_resource_limit")
        for line in spec.nodes.resource_request(role).beyond(spec.nodes.resource_limit(role)):
            yield _problem(*names, because=f"--{names[0]}: {line} in --{names[1]}.")
    ours = reserved.variables(spec.model, num_ps=spec.nodes.num_ps)
    for name in spec.nodes.envs:
        if name in ours:
            yield _problem("envs", because=f"--envs: {name} is set by the master and cannot be given.")
    for name in spec.nodes.secret_envs:
        if name in ours:
            yield _problem(
                "secret_envs", because=f"--secret_envs: {name} is set by the master and cannot be given."
            )
        if name in spec.nodes.envs:
            yield _problem(
                "envs", "secret_envs", because=f"{name} is given twice, by --envs and by --secret_envs."
            )


def _hosts(spec: Sections) -> Iterator[Problem]:
    nodes = spec.nodes
    if not nodes.hosts:
        for name in ("hosts_python", "ssh_config", "master_host"):
            if getattr(nodes, name):
                yield _problem(name, "hosts", because=f"--{name} is for jobs on several machines (--hosts).")
        return
    if spec.cluster.image_name:
        yield _problem(
            "hosts",
            "image_name",
            because="--hosts and --image_name exclude each other: a job with an image runs on Kubernetes.",
        )
    if is_url(spec.checkpoint.checkpoint_dir):
        yield _problem(
            "hosts",
            "checkpoint_dir",
            because="--checkpoint_dir: with --hosts it is a folder that all of them share, not a URL.",
        )


def _cluster(spec: Sections) -> Iterator[Problem]:
    cluster = spec.cluster
    for name, value in (("worker_image", cluster.worker_image), ("ps_image", cluster.ps_image)):
        if value and not cluster.image_name:
            yield _problem(
                name, "image_name", because=f"--{name} needs --image_name, the image of the master."
            )
    if spec.nodes.secret_envs and not cluster.image_name:
        yield _problem(
            "secret_envs",
            "image_name",
            because="--secret_envs is for jobs on a cluster (--image_name): there are no Secrets on this machine. "
            "Nodes have the variables of the shell that starts the job.",
        )
    if cluster.job_account and cluster.service_account:
        yield _problem(
            "job_account",
            "service_account",
            because="--job_account and --service_account exclude each other: give one.",
        )
    if spec.tracking.wandb_project and cluster.image_name:
        yield _problem(
            "wandb_project",
            "image_name",
            because="--wandb_project is for jobs on this machine: the run is written into the folder of the job, which "
            "is lost with a pod. On a cluster use --mlflow_uri.",
        )
    if cluster.journal_dir and not cluster.image_name:
        yield _problem(
            "journal_dir",
            "image_name",
            because="--journal_dir is for jobs on a cluster (--image_name). On this machine the journal is in the "
            "job's folder.",
        )
    yield from _off_every_volume(spec)
    if cluster.cluster_spec and cluster.cluster_spec_json:
        yield _problem(
            "cluster_spec",
            "cluster_spec_json",
            because="--cluster_spec and --cluster_spec_json exclude each other: give one.",
        )
    if cluster.cluster_spec_json:
        try:
            fields = parse_pod_fields(cluster.cluster_spec_json)
        except BadValue as problem:
            words = str(problem)
            end = "" if words.endswith("?") else "."
            yield _problem("cluster_spec_json", because=f"--cluster_spec_json: {words}{end}")
            return
        # Places of every job are validated where the fields are read; these are of this job.
        ours = reserved.variables(spec.model, num_ps=spec.nodes.num_ps)
        for where, given in fields.items():
            for name in [entry["name"] for entry in given.get("env", ()) if entry["name"] in ours]:
                yield _problem(
                    "cluster_spec_json",
                    "job_command",
                    "need_tf_config",
                    because=f"--cluster_spec_json: {where}.env: {name} is set by the job and cannot be given.",
                )


def _off_every_volume(spec: Sections) -> Iterator[Problem]:
    """Reports paths on a pod's own disk, whose content is lost with the pod, and which no other pod can read."""
    # Files that add fields to pods are checked again when the job is submitted.
    if not spec.cluster.image_name or spec.cluster.cluster_spec:
        return
    init = spec.checkpoint.checkpoint_dir_for_init
    if is_url(init) and spec.kind == "train":
        yield _problem(
            "checkpoint_dir_for_init",
            because="--checkpoint_dir_for_init: on Kubernetes a training starts from a path in a --volume, "
            f"not from {init}.",
        )
    places = [*_writable_mounts(spec)]
    for flag, path in (
        ("checkpoint_dir", spec.checkpoint.checkpoint_dir),
        ("output", spec.training.output),
        ("journal_dir", spec.cluster.journal_dir),
    ):
        if is_url(path):
            if flag == "checkpoint_dir" or spec.kind == "predict":
                yield _problem(
                    flag,
                    because=f"--{flag}: on Kubernetes {path} must be a path in a --volume: pods write parts of it at "
                    "the same time. URLs work for data, for --output of a training, and for jobs on this machine.",
                )
        elif path and not any(_inside(path, place) for place in places):
            yield _problem(
                flag,
                "volume",
                because=f"--{flag}: no --volume that can be written is mounted at {path}: what a pod writes there is "
                "seen by no other pod, and lost with it. Mount one (--volume), and give the path that it has in pods.",
            )


def _writable_mounts(spec: Sections) -> Iterator[str]:
    for volume in spec.cluster.volume:
        if not volume.read_only and (volume.host_path or volume.claim_name):
            yield volume.mount_path
    try:
        fields = parse_pod_fields(spec.cluster.cluster_spec_json or "{}")
    except BadValue:
        # Reported where that flag is checked.
        return
    for of_role in fields.values():
        for mount in of_role.get("volumeMounts", ()):
            if not mount.get("readOnly"):
                yield mount["mountPath"]


def _inside(path: str, place: str) -> bool:
    whole = posixpath.normpath(path)
    return whole.startswith("/") and f"{whole}/".startswith(f"{posixpath.normpath(place).rstrip('/')}/")
