"""TrainingJob: the resource as typed objects.

A TrainingJob says what to run, and between which sizes. There are two ways to say what to run: `job`, a whole JobSpec
(model definitions, job commands, everything that `elasticdl train` has a flag for), or `image` with
`trainer.entrypoint`, as PaddlePaddle EDL had it. `parsing` makes these objects from documents and fills in the sizes
and resources of `trainer`, `pserver` and `master` in both cases, so that the controller needs to look at nothing else.

`trainer.replicas` is the size that a user pins with `kubectl scale`; 0 leaves the size to the controller.
"""

# ruff: noqa: RUF009 - a field description is a dataclass field

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elasticdl.jobs.sections.resources import Resources
from elasticdl.jobs.spec import JobSpec
from elasticdl.jobs.training_job.fields import FieldKind, training_job_field

GROUP = "elasticdl.org"
# PaddlePaddle EDL's, whose documents are accepted too.
EDL_GROUP = "paddlepaddle.org"
VERSION = "v1"
KIND = "TrainingJob"
PLURAL = "trainingjobs"
API_VERSIONS = (f"{GROUP}/{VERSION}", f"{EDL_GROUP}/{VERSION}")
# Jobs with this label are suspended until Kueue has admitted them.
QUEUE_NAME_LABEL = "kueue.x-k8s.io/queue-name"
DEFAULT_PORT = 7164

_LONGEST_COUNT = 100_000


@dataclass(frozen=True, kw_only=True)
class RoleResources:
    """The requests and limits of each instance of a role."""

    requests: Resources = training_job_field(
        FieldKind.QUANTITIES,
        "What each instance is guaranteed, such as cpu: 500m and memory: 1Gi. Required for roles that are scaled.",
        key="requests",
        factory=Resources,
    )
    limits: Resources = training_job_field(
        FieldKind.QUANTITIES,
        "What each instance may not exceed.",
        key="limits",
        factory=Resources,
    )


@dataclass(frozen=True, kw_only=True)
class TrainerSpec:
    """The workers. `min_instance` and `max_instance` are those of `job` where the document has a job."""

    entrypoint: str = training_job_field(
        FieldKind.TEXT, "Command that every trainer runs in a shell.", key="entrypoint", default=""
    )
    workspace: str = training_job_field(
        FieldKind.TEXT, "Working directory of the entrypoint, in the image.", key="workspace", default=""
    )
    passes: int = training_job_field(
        FieldKind.INTEGER,
        "Passes over the data; spec.passes means the same.",
        key="passes",
        default=0,
        minimum=0,
    )
    min_instance: int = training_job_field(
        FieldKind.INTEGER,
        "Fewest trainers that the job runs with. It waits until so many fit into the cluster.",
        key="min-instance",
        default=1,
        minimum=0,
        maximum=_LONGEST_COUNT,
        aliases=("min_instance", "minInstance"),
    )
    max_instance: int = training_job_field(
        FieldKind.INTEGER,
        "Most trainers that the job runs with. The controller uses idle capacity up to this number. More than "
        "min-instance requires fault_tolerant.",
        key="max-instance",
        default=1,
        minimum=0,
        maximum=_LONGEST_COUNT,
        aliases=("max_instance", "maxInstance"),
    )
    replicas: int = training_job_field(
        FieldKind.INTEGER,
        "Pins the number of trainers, within min-instance and max-instance; `kubectl scale` writes it. 0: the "
        "controller chooses the number.",
        key="replicas",
        default=0,
        minimum=0,
        maximum=_LONGEST_COUNT,
        server_default=0,
    )
    resources: RoleResources = training_job_field(
        FieldKind.SECTION,
        "Resources of each trainer.",
        key="resources",
        factory=RoleResources,
        section=RoleResources,
    )

    @property
    def is_elastic(self) -> bool:
        return self.max_instance > self.min_instance

    @property
    def pinned(self) -> int | None:
        """The size that a user asked for, moved into the range. None: the controller chooses."""
        return min(max(self.replicas, self.min_instance), self.max_instance) if self.replicas else None


@dataclass(frozen=True, kw_only=True)
class PserverSpec:
    """The parameter servers."""

    min_instance: int = training_job_field(
        FieldKind.INTEGER,
        "Fewest parameter servers.",
        key="min-instance",
        default=0,
        minimum=0,
        maximum=_LONGEST_COUNT,
        aliases=("min_instance", "minInstance"),
    )
    max_instance: int = training_job_field(
        FieldKind.INTEGER,
        "Most parameter servers. ElasticDL's own servers are scaled while the job runs; those of a program of your "
        "own (spec.trainer.entrypoint) stay at min-instance, because its framework knows their addresses.",
        key="max-instance",
        default=0,
        minimum=0,
        maximum=_LONGEST_COUNT,
        aliases=("max_instance", "maxInstance"),
    )
    resources: RoleResources = training_job_field(
        FieldKind.SECTION,
        "Resources of each parameter server.",
        key="resources",
        factory=RoleResources,
        section=RoleResources,
    )

    @property
    def is_elastic(self) -> bool:
        return self.max_instance > self.min_instance


@dataclass(frozen=True, kw_only=True)
class MasterSpec:
    """The resources and the placement of the master."""

    etcd_endpoint: str = training_job_field(
        FieldKind.TEXT,
        "Accepted for documents of PaddlePaddle EDL and not used: the master keeps its own journal.",
        key="etcd-endpoint",
        default="",
        aliases=("etcd_endpoint",),
    )
    resources: RoleResources = training_job_field(
        FieldKind.SECTION,
        "Resources of the master.",
        key="resources",
        factory=RoleResources,
        section=RoleResources,
    )


@dataclass(frozen=True, kw_only=True)
class TrainingJobSpec:
    """The program of a TrainingJob and its sizes. Checked by `parsing.parse_training_job`."""

    image: str = training_job_field(
        FieldKind.TEXT,
        "Image of all pods, for trainer.entrypoint. It needs Python with elasticdl for the master.",
        key="image",
        default="",
    )
    port: int = training_job_field(
        FieldKind.INTEGER,
        "First port of the parameter servers of a Paddle program, passed on as PADDLE_INIT_PORT.",
        key="port",
        default=DEFAULT_PORT,
        minimum=1,
        maximum=65535,
    )
    ports_num: int = training_job_field(
        FieldKind.INTEGER,
        "Number of ports for dense parameters, passed on as PADDLE_INIT_PORTS_NUM.",
        key="ports_num",
        default=1,
        minimum=1,
    )
    ports_num_for_sparse: int = training_job_field(
        FieldKind.INTEGER,
        "Number of ports for sparse parameters, passed on as PADDLE_INIT_PORTS_NUM_FOR_SPARSE.",
        key="ports_num_for_sparse",
        default=1,
        minimum=0,
    )
    fault_tolerant: bool = training_job_field(
        FieldKind.BOOLEAN,
        "The program takes its data from the master (elasticai_api), so that trainers may come and go. Required where "
        "max-instance is more than min-instance.",
        key="fault_tolerant",
        default=False,
        aliases=("faultTolerant",),
    )
    passes: int = training_job_field(
        FieldKind.INTEGER,
        "Passes over the data, passed on as PADDLE_INIT_NUM_PASSES; 0: the program decides.",
        key="passes",
        default=0,
        minimum=0,
    )
    volumes: tuple[Mapping[str, Any], ...] = training_job_field(
        FieldKind.OBJECTS, "Volumes of all pods, as in a pod.", key="volumes", default=()
    )
    volume_mounts: tuple[Mapping[str, Any], ...] = training_job_field(
        FieldKind.OBJECTS,
        "Where the volumes are mounted, as in a container.",
        key="volumeMounts",
        default=(),
        aliases=("VolumeMounts", "volume_mounts"),
    )
    image_pull_secrets: tuple[Mapping[str, Any], ...] = training_job_field(
        FieldKind.OBJECTS,
        "Secrets to pull the images with, as in a pod.",
        key="imagePullSecrets",
        default=(),
        aliases=("image_pull_secrets",),
    )
    host_network: bool = training_job_field(
        FieldKind.BOOLEAN,
        "Trainers and parameter servers use the network of their machine.",
        key="hostNetwork",
        default=False,
        aliases=("host_network",),
    )
    node_selector: Mapping[str, str] = training_job_field(
        FieldKind.TEXTS,
        "Labels of the machines that the pods may run on, as in a pod.",
        key="nodeSelector",
        factory=dict,
        aliases=("node_selector",),
    )
    tolerations: tuple[Mapping[str, Any], ...] = training_job_field(
        FieldKind.OBJECTS, "Taints that the pods tolerate, as in a pod.", key="tolerations", default=()
    )
    priority_class_name: str = training_job_field(
        FieldKind.TEXT,
        "Priority class of all pods. Jobs of higher priority are admitted first and take capacity from others.",
        key="priorityClassName",
        default="",
    )
    weight: float = training_job_field(
        FieldKind.NUMBER,
        "Share of the capacity relative to other jobs of the same priority. More than 0.",
        key="weight",
        default=1.0,
    )
    suspend: bool = training_job_field(
        FieldKind.BOOLEAN,
        "The job does not start, or is stopped with its progress kept, until this is false.",
        key="suspend",
        default=False,
    )
    ttl_seconds_after_finished: int | None = training_job_field(
        FieldKind.INTEGER,
        "Seconds after which a finished job is deleted. Without it, it stays.",
        key="ttlSecondsAfterFinished",
        default=None,
        minimum=0,
    )
    trainer: TrainerSpec = training_job_field(
        FieldKind.SECTION,
        "The trainers (workers): what they run, how many, and what each of them uses.",
        key="trainer",
        factory=TrainerSpec,
        section=TrainerSpec,
        server_default={},
    )
    pserver: PserverSpec = training_job_field(
        FieldKind.SECTION,
        "The parameter servers: how many, and what each of them uses.",
        key="pserver",
        factory=PserverSpec,
        section=PserverSpec,
    )
    master: MasterSpec = training_job_field(
        FieldKind.SECTION, "The master.", key="master", factory=MasterSpec, section=MasterSpec
    )
    job: JobSpec | None = training_job_field(
        FieldKind.JOB,
        "A whole job, in the sections and flags of `elasticdl train`, instead of image and trainer.entrypoint. Its "
        "min_workers, max_workers, min_ps and max_ps are the sizes.",
        key="job",
        default=None,
    )


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """A TrainingJob of a cluster. Times are seconds since 1970."""

    namespace: str
    name: str
    uid: str = ""
    api_version: str = API_VERSIONS[0]
    # Grows with every change of the spec.
    generation: int = 0
    resource_version: str = ""
    created_seconds: float = 0.0
    # Set once the object is being deleted.
    deleted_seconds: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    spec: TrainingJobSpec = field(default_factory=TrainingJobSpec)
    # As it is in the document; `status.TrainingJobStatus.from_document` reads it.
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def is_deleted(self) -> bool:
        return self.deleted_seconds is not None

    @property
    def queue_name(self) -> str:
        """The queue of Kueue that admits the job. Empty: none does."""
        return self.labels.get(QUEUE_NAME_LABEL, "")
