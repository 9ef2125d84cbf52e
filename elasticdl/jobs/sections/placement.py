"""The nodes of a job and their placement: the sections `nodes` and `cluster` of a job."""

# ruff: noqa: RUF009 - a flag is a dataclass field, created separately for every class

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.jobs.flags.flag import KINDS, TRAIN, JobKind, Topic, flag
from elasticdl.jobs.flags.grammar import (
    Boolean,
    Choice,
    FilePath,
    Grammar,
    Integer,
    Pairs,
    Pattern,
    Real,
    Text,
)
from elasticdl.jobs.flags.names import DNS_LABEL, DNS_NAME, ENVIRONMENT_VARIABLE, IMAGE
from elasticdl.jobs.sections.egress import EgressGrammar, Target
from elasticdl.jobs.sections.env_secrets import SECRET_ENVS
from elasticdl.jobs.sections.hosts import HostsGrammar
from elasticdl.jobs.sections.priority import PriorityGrammar
from elasticdl.jobs.sections.resources import Quantity, Resources, ResourcesGrammar
from elasticdl.jobs.sections.volumes import Volume, VolumesGrammar

ROLES = ("master", "ps", "worker", "chief", "evaluator")
_NOTHING = Resources()
_GROWS = dict.fromkeys(
    ("worker", "chief", "evaluator"),
    " Memory starts at the request and is doubled up to this limit after each out-of-memory kill.",
)


def _kinds(role: str) -> tuple[JobKind, ...]:
    return TRAIN if role in ("chief", "evaluator") else KINDS


def _request(role: str) -> Resources:
    return flag(
        ResourcesGrammar(),
        _NOTHING,
        f"Resources to reserve for each {role} node, such as cpu=1,memory=2Gi,gpu=1.",
        topic=Topic.RESOURCES,
        kinds=_kinds(role),
    )


def _limit(role: str) -> Resources:
    # All nodes of a job wait for a master that is throttled.
    rest = "the request; CPU is not limited" if role == "master" else "the request"
    return flag(
        ResourcesGrammar(),
        _NOTHING,
        f"Most resources that each {role} node may use. Default: {rest}.{_GROWS.get(role, '')}",
        topic=Topic.RESOURCES,
        kinds=_kinds(role),
    )


def _priority(role: str) -> str:
    # Only workers are many and alike, so only they can be divided.
    grammar: Grammar[str] = PriorityGrammar() if role == "worker" else Text(metavar="NAME", rule=DNS_NAME)
    more = "; high=0.5: for the first half of them" if role == "worker" else ""
    return flag(
        grammar, "", f"Priority class of {role} pods{more}.", topic=Topic.RESOURCES, kinds=_kinds(role)
    )


@dataclass(frozen=True, kw_only=True)
class NodesSection:
    """The number of nodes of each role, their resources, and the reaction to their failures."""

    num_workers: int = flag(
        Integer(),
        1,
        "Number of workers at the start.",
        topic=Topic.NODES,
        derived="min_workers, and at least 1",
    )
    min_workers: int = flag(
        Integer(),
        0,
        "Smallest number of workers that the job can be scaled to; 0: no limit.",
        topic=Topic.NODES,
    )
    max_workers: int = flag(
        Integer(),
        0,
        "Largest number of workers that the job can be scaled to; 0: no limit.",
        topic=Topic.NODES,
    )
    num_ps: int = flag(
        Integer(),
        0,
        "Number of parameter servers.",
        topic=Topic.NODES,
        aliases=("num_ps_pods",),
        derived="min_ps, and at least 1 with ParameterServerStrategy",
    )
    min_ps: int = flag(
        Integer(),
        0,
        "Smallest number of parameter servers that the job can be scaled to; 0: no limit.",
        topic=Topic.NODES,
    )
    max_ps: int = flag(
        Integer(),
        0,
        "Largest number of parameter servers that the job can be scaled to; 0: no limit.",
        topic=Topic.NODES,
    )
    ps_replicas: int = flag(
        Integer(minimum=1, maximum=2),
        2,
        "Copies of each parameter if there are several parameter servers. With 2, the job survives the loss of one.",
        topic=Topic.NODES,
        kinds=TRAIN,
    )
    num_evaluator: int = flag(
        Integer(), 0, "Number of evaluators, for job commands with this role.", topic=Topic.NODES, kinds=TRAIN
    )
    num_chief: int = flag(
        Integer(maximum=1),
        0,
        "Number of chief workers, for job commands with this role.",
        topic=Topic.NODES,
        kinds=TRAIN,
        derived="1 for a job command with need_tf_config, 0 otherwise",
    )
    master_resource_request: Resources = _request("master")
    master_resource_limit: Resources = _limit("master")
    master_pod_priority: str = _priority("master")
    ps_resource_request: Resources = _request("ps")
    ps_resource_limit: Resources = _limit("ps")
    ps_pod_priority: str = _priority("ps")
    worker_resource_request: Resources = _request("worker")
    worker_resource_limit: Resources = _limit("worker")
    worker_pod_priority: str = _priority("worker")
    chief_resource_request: Resources = _request("chief")
    chief_resource_limit: Resources = _limit("chief")
    chief_pod_priority: str = _priority("chief")
    evaluator_resource_request: Resources = _request("evaluator")
    evaluator_resource_limit: Resources = _limit("evaluator")
    evaluator_pod_priority: str = _priority("evaluator")
    default_resource_limit: Resources = flag(
        ResourcesGrammar(),
        Resources(memory=Quantity(text="8Gi")),
        "On a cluster, limit of a node for resources without a request and a limit of its role; empty: no limit.",
        topic=Topic.RESOURCES,
    )
    relaunch_on_worker_failure: int = flag(
        Integer(),
        3,
        "How many times a worker that exits with an error is replaced. Killed workers are replaced without limit.",
        topic=Topic.FAILURE,
    )
    restart_policy: str = flag(
        Choice(
            choices=("Never",),
            because="pods that end are replaced by the master (see --relaunch_on_worker_failure), and a container that "
            "Kubernetes starts again would be rejected as unknown",
        ),
        "Never",
        "Restart policy of pods. Only Never: the master replaces pods itself.",
        topic=Topic.FAILURE,
    )
    max_shard_retries: int = flag(
        Integer(), 3, "How many failures of one shard fail the job.", topic=Topic.FAILURE
    )
    stall_factor: float = flag(
        Real(),
        20.0,
        "Kill a worker that makes no progress for this many median batch times, and requeue its shards; 0: never.",
        topic=Topic.FAILURE,
    )
    stall_floor_seconds: float = flag(
        Real(),
        60.0,
        "Shortest stall timeout of a worker. An unresponsive parameter server is killed after half of it.",
        topic=Topic.FAILURE,
    )
    start_timeout_seconds: float = flag(
        Real(),
        600.0,
        "Kill and replace a node that has not joined its master by then, and a worker of a job command that has not "
        "fetched data by then although others have; 0: never.",
        topic=Topic.FAILURE,
    )
    hosts: tuple[str, ...] = flag(
        HostsGrammar(),
        (),
        "Machines that the nodes run on, as ssh names them; the master runs on this one. Without them, all run here.",
        topic=Topic.NODES,
    )
    hosts_python: str = flag(
        FilePath(metavar="FILE"),
        "",
        "The Python of the hosts, which has elasticdl.",
        topic=Topic.NODES,
        derived="the path of the one that runs this command",
    )
    ssh_config: str = flag(
        FilePath(metavar="FILE"),
        "",
        "Configuration of ssh for --hosts.",
        topic=Topic.NODES,
        derived="that of the user",
    )
    master_host: str = flag(
        Text(metavar="ADDRESS"),
        "",
        "The address of this machine for --hosts.",
        topic=Topic.NODES,
        derived="the one that their ssh servers see",
    )
    envs: dict[str, str] = flag(
        Pairs(key_rule=ENVIRONMENT_VARIABLE),
        {},
        "Environment variables of all nodes. On a cluster, their values are stored in a Secret of the job.",
        topic=Topic.NODES,
    )
    secret_envs: dict[str, str] = flag(
        SECRET_ENVS,
        {},
        "Environment variables of all nodes, with values from Secrets of the namespace. KEY defaults to the name of "
        "the variable.",
        topic=Topic.CLUSTER,
    )
    populate_env_names: str = flag(
        Pattern(),
        "",
        "Pass variables of the submitter's environment to all pods if the whole name matches this pattern, except "
        "KUBERNETES_…, which every pod has from its own cluster.",
        topic=Topic.CLUSTER,
    )

    def range_of(self, role: str) -> tuple[int, int | None]:
        """Returns the fewest and the most nodes that a role may be scaled to. None: any number."""
        low, high = {"worker": (self.min_workers, self.max_workers), "ps": (self.min_ps, self.max_ps)}[role]
        return low, high or None

    def resource_request(self, role: str) -> Resources:
        return _resources(getattr(self, f"{role}_resource_request"))

    def resource_limit(self, role: str) -> Resources:
        return _resources(getattr(self, f"{role}_resource_limit"))

    def pod_priority(self, role: str) -> str:
        return str(getattr(self, f"{role}_pod_priority"))


def _resources(value: object) -> Resources:
    assert isinstance(value, Resources)
    return value


@dataclass(frozen=True, kw_only=True)
class ClusterSection:
    """Images, volumes and the rest that Kubernetes reads. Without an image, a job runs on this machine."""

    image_name: str = flag(
        Text(metavar="IMAGE", rule=IMAGE),
        "",
        "Image of the nodes. Without it, the job runs on this machine.",
        topic=Topic.CLUSTER,
    )
    worker_image: str = flag(
        Text(metavar="IMAGE", rule=IMAGE),
        "",
        "Image of the workers, if it differs from --image_name.",
        topic=Topic.CLUSTER,
    )
    ps_image: str = flag(
        Text(metavar="IMAGE", rule=IMAGE),
        "",
        "Image of the parameter servers, if it differs from --image_name.",
        topic=Topic.CLUSTER,
    )
    namespace: str = flag(
        Text(metavar="NAME", rule=DNS_LABEL),
        "",
        "Namespace of the job.",
        topic=Topic.CLUSTER,
        derived="that of kubectl's current context, else default",
    )
    volume: tuple[Volume, ...] = flag(
        VolumesGrammar(), (), "Volumes to mount into all nodes.", topic=Topic.CLUSTER
    )
    image_pull_policy: str = flag(
        Choice(choices=("Always", "IfNotPresent", "Never"), optional=True),
        "",
        "When images are pulled.",
        topic=Topic.CLUSTER,
        derived="Kubernetes decides by the tag of the image",
    )
    image_pull_secret: str = flag(
        Text(metavar="NAME", rule=DNS_NAME), "", "Secret to pull images with.", topic=Topic.CLUSTER
    )
    cluster_spec: str = flag(
        FilePath(metavar="FILE"),
        "",
        "YAML or JSON file with fields to add to every pod.",
        topic=Topic.CLUSTER,
    )
    cluster_spec_json: str = flag(
        Text(metavar="JSON"), "", "Like --cluster_spec, as JSON text.", topic=Topic.CLUSTER
    )
    service_account: str = flag(
        Text(metavar="NAME", rule=DNS_NAME),
        "",
        "Service account of the master; use --cluster_spec for other roles.",
        topic=Topic.CLUSTER,
    )
    job_account: bool = flag(
        Boolean(),
        False,
        "Create a service account for the master of this job, with a Role that names the objects of the job. The "
        "submitter needs the right to create Roles.",
        topic=Topic.CLUSTER,
    )
    read_only_root_filesystem: bool = flag(
        Boolean(),
        True,
        "Containers can write only to volumes, /tmp and their home folder; false: also to the file system of their "
        "image.",
        topic=Topic.CLUSTER,
    )
    egress: tuple[Target, ...] = flag(
        EgressGrammar(),
        (),
        "Networks that pods may connect to, such as data sources, besides pods of their job and DNS; any: all "
        "networks. The master may also connect to API servers.",
        topic=Topic.CLUSTER,
    )
    journal_dir: str = flag(
        FilePath(metavar="DIR", completes=""),
        "",
        "Folder on a volume for the master's journal, so that it survives the master's pod. Also used for checkpoints "
        "if --checkpoint_dir is not given.",
        topic=Topic.CLUSTER,
        derived="in the master's pod",
    )
    master_port: int = flag(
        Integer(maximum=65535),
        0,
        "Port of the master; 0: any free port (on a cluster 50001).",
        topic=Topic.CLUSTER,
    )
    log_level: str = flag(
        Choice(choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")),
        "INFO",
        "Lowest level of the messages in the logs of the nodes.",
        topic=Topic.JOB,
    )
