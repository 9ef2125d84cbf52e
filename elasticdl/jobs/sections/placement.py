"""Which nodes a job has and where they run: the sections `nodes` and `cluster` of a job."""

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
    " Memory begins as requested and doubles up to this whenever it has run out.",
)


def _kinds(role: str) -> tuple[JobKind, ...]:
    return TRAIN if role in ("chief", "evaluator") else KINDS


def _request(role: str) -> Resources:
    return flag(
        ResourcesGrammar(),
        _NOTHING,
        f"What each {role} node is promised, such as cpu=1,memory=2Gi,gpu=1.",
        topic=Topic.RESOURCES,
        kinds=_kinds(role),
    )


def _limit(role: str) -> Resources:
    # All nodes of a job wait for a master that is throttled.
    rest = "as requested, but for CPU, which is not limited" if role == "master" else "as requested"
    return flag(
        ResourcesGrammar(),
        _NOTHING,
        f"What each {role} node may not go beyond; what is not said is {rest}.{_GROWS.get(role, '')}",
        topic=Topic.RESOURCES,
        kinds=_kinds(role),
    )


def _priority(role: str) -> str:
    # Only workers are many and alike, so only they can be divided.
    grammar: Grammar[str] = PriorityGrammar() if role == "worker" else Text(metavar="NAME", rule=DNS_NAME)
    more = "; high=0.5 for the first half of them" if role == "worker" else ""
    return flag(
        grammar, "", f"Priority class of {role} pods{more}.", topic=Topic.RESOURCES, kinds=_kinds(role)
    )


@dataclass(frozen=True, kw_only=True)
class NodesSection:
    """How many nodes of each role, what each may use, and what happens when one fails."""

    num_workers: int = flag(
        Integer(), 1, "Workers to start with.", topic=Topic.NODES, derived="min_workers, and at least 1"
    )
    min_workers: int = flag(
        Integer(), 0, "Fewest workers that the job may be scaled to; 0: no bound.", topic=Topic.NODES
    )
    max_workers: int = flag(
        Integer(), 0, "Most workers that the job may be scaled to; 0: no bound.", topic=Topic.NODES
    )
    num_ps: int = flag(
        Integer(),
        0,
        "Parameter servers.",
        topic=Topic.NODES,
        aliases=("num_ps_pods",),
        derived="min_ps, and at least 1 with ParameterServerStrategy",
    )
    min_ps: int = flag(
        Integer(),
        0,
        "Fewest parameter servers that the job may be scaled to; 0: no bound.",
        topic=Topic.NODES,
    )
    max_ps: int = flag(
        Integer(), 0, "Most parameter servers that the job may be scaled to; 0: no bound.", topic=Topic.NODES
    )
    ps_replicas: int = flag(
        Integer(minimum=1, maximum=2),
        2,
        "Copies of everything on parameter servers, where there are two or more: with 2, any of them may be lost.",
        topic=Topic.NODES,
        kinds=TRAIN,
    )
    num_evaluator: int = flag(
        Integer(), 0, "Evaluators, for a job command that has that role.", topic=Topic.NODES, kinds=TRAIN
    )
    num_chief: int = flag(
        Integer(maximum=1),
        0,
        "Chief workers, for a job command that has that role.",
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
        "On a cluster, what a node may not go beyond of a resource of which its role has neither request nor limit; "
        "empty: no limit.",
        topic=Topic.RESOURCES,
    )
    relaunch_on_worker_failure: int = flag(
        Integer(),
        3,
        "Times that a worker which failed by its own error is replaced. One that was killed always is.",
        topic=Topic.FAILURE,
    )
    restart_policy: str = flag(
        Choice(
            choices=("Never",),
            because="pods that end are replaced by the master (see --relaunch_on_worker_failure), and a container that "
            "Kubernetes starts again would be taken for a stranger",
        ),
        "Never",
        "What Kubernetes itself restarts in the pods that the master makes: nothing, for the master replaces them.",
        topic=Topic.FAILURE,
    )
    max_shard_retries: int = flag(
        Integer(), 3, "Times that a shard may fail before it fails the job.", topic=Topic.FAILURE
    )
    stall_factor: float = flag(
        Real(),
        20.0,
        "A worker without progress for so many median batch times loses its shard to another; 0: never.",
        topic=Topic.FAILURE,
    )
    stall_floor_seconds: float = flag(
        Real(),
        60.0,
        "No worker loses its shard in less than this. A parameter server that does not answer has half of it.",
        topic=Topic.FAILURE,
    )
    start_timeout_seconds: float = flag(
        Real(),
        600.0,
        "A node that has not joined its master for so long after its start is ended and tried again; so is a worker "
        "with a job command that has not asked for data by then, while others have; 0: never.",
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
        "Environment variables for all nodes. On a cluster their values are kept in a Secret of the job.",
        topic=Topic.NODES,
    )
    secret_envs: dict[str, str] = flag(
        SECRET_ENVS,
        {},
        "Environment variables for all nodes with values from Secrets of the namespace; without KEY, the key has the "
        "name of the variable.",
        topic=Topic.CLUSTER,
    )
    populate_env_names: str = flag(
        Pattern(),
        "",
        "Variables of the submitter's environment that all pods get: those whose whole name fits this pattern; but "
        "none that begins with KUBERNETES_, which every pod has of its own cluster.",
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
        "Image of the nodes. Without one the job runs on this machine.",
        topic=Topic.CLUSTER,
    )
    worker_image: str = flag(
        Text(metavar="IMAGE", rule=IMAGE),
        "",
        "Image of the workers, if it is another one.",
        topic=Topic.CLUSTER,
    )
    ps_image: str = flag(
        Text(metavar="IMAGE", rule=IMAGE),
        "",
        "Image of the parameter servers, if it is another one.",
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
        VolumesGrammar(), (), "Folders that all nodes see.", topic=Topic.CLUSTER
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
    cluster_spec_json: str = flag(Text(metavar="JSON"), "", "The same as text.", topic=Topic.CLUSTER)
    service_account: str = flag(
        Text(metavar="NAME", rule=DNS_NAME),
        "",
        "Account that the master acts under; --cluster_spec gives one to others.",
        topic=Topic.CLUSTER,
    )
    job_account: bool = flag(
        Boolean(),
        False,
        "Make an account for the master of this job alone, with a Role that names the objects of the job. The "
        "submitter needs the right to make Roles.",
        topic=Topic.CLUSTER,
    )
    read_only_root_filesystem: bool = flag(
        Boolean(),
        True,
        "Containers can write to volumes, to /tmp and to their home folder only; false: also to the file system of "
        "their image.",
        topic=Topic.CLUSTER,
    )
    egress: tuple[Target, ...] = flag(
        EgressGrammar(),
        (),
        "Networks that pods may connect to beside pods of their job and DNS: data sources, say; any: everything. The "
        "master also reaches API servers.",
        topic=Topic.CLUSTER,
    )
    journal_dir: str = flag(
        FilePath(metavar="DIR", completes=""),
        "",
        "Folder on a volume for the journal of the master, so that it outlasts the master's pod; and for checkpoints "
        "without a folder of their own.",
        topic=Topic.CLUSTER,
        derived="in the master's pod",
    )
    master_port: int = flag(
        Integer(maximum=65535),
        0,
        "Port at which the master is found; 0: one that is free (50001 on a cluster).",
        topic=Topic.CLUSTER,
    )
    log_level: str = flag(
        Choice(choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")),
        "INFO",
        "Least important messages in the logs of the nodes.",
        topic=Topic.JOB,
    )
