"""The manifests of a job's pods: pure functions from a JobSpec and a request for a node to a document.

All of a job's pods are alike in what keeps them in their place: no root, no privileges, no account of the cluster (but
the master, which has its own, and who is given one), no place to write to but volumes, /tmp and a home folder, and no
more of the job's secrets than they need. Values of `--envs` come from a Secret, so that manifests do not contain them.

Kubernetes terminates a pod by a SIGTERM to its program. The first process of a container ignores
that signal unless it installs a handler, so the processes of a pod share a namespace whose first process is not theirs.
"""

from __future__ import annotations

from typing import Any

from elasticdl.jobs.sections.env_secrets import SecretKey
from elasticdl.jobs.sections.pod_fields import add_to_pod, fields_of, parse_pod_fields
from elasticdl.jobs.sections.priority import parse_priority
from elasticdl.jobs.sections.reserved import HOME_FOLDER, NOTICE_FOLDER, SECRET_FOLDER, STATE_FOLDER
from elasticdl.jobs.sections.resources import Resources, grown_memory
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes import naming
from elasticdl.platforms.kubernetes.pods.volumes import volumes_and_mounts
from elasticdl.platforms.platform import MASTER_ROLE, NodeRequest

Document = dict[str, Any]

DEFAULT_ACCOUNT = "elasticdl"
PYTHON = "python3"
GRACE_SECONDS = 30
# A user's own program leases no more shards once it is to be drained. It has this long to exit by itself before
# SIGTERM, which most programs do not survive. No more than half of its grace period, to leave
# time after the signal.
NOTICE_SECONDS = 15
# The master's own wish needs no notice: with this the signal comes at once. Kubelets bring what is said of a pod into
# its files when it changes.
_NO_NOTICE_NAME = "elasticdl-no-notice"
NO_NOTICE: Document = {"metadata": {"annotations": {_NO_NOTICE_NAME: "true"}}}
# Unique state is not risked to find out how much memory a node needs.
_WHOLE_LIMIT = (MASTER_ROLE, "ps")
# Any user but root. The images that we build have one of this number.
_USER = 1000
_NOTHING_REQUESTED = "0"
# Autoscalers remove machines that have room to spare: not the machine of a master, whose loss interrupts the job.
_STAYS = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}
# The toleration of an unreachable machine, after the 40 s that its detection takes. Kubernetes' own
# default is 300 s; a node of ours is replaced without harm. (Not so a master, which has no supervisor of its own.)
_LOST_SECONDS = 30


def master_pod(spec: JobSpec, *, owner: Document | None = None) -> Document:
    environment = {
        "ELASTICDL_PLATFORM": "kubernetes",
        "ELASTICDL_JOB": spec.job_name,
        "ELASTICDL_JOB_DIR": STATE_FOLDER,
        **secret_files(spec, serves=True),
        "PYTHONUNBUFFERED": "1",
    }
    pod = _pod(
        spec,
        role=MASTER_ROLE,
        name=naming.master_name(spec.job_name),
        labels=naming.node_labels(spec.job_name, f"{MASTER_ROLE}-0", 0),
        command=(PYTHON, "-m", "elasticdl.master"),
        environment={**spec.nodes.envs, **environment},
        resources=_resources(spec, MASTER_ROLE, doublings=0),
        priority=spec.nodes.pod_priority(MASTER_ROLE),
        owner=owner,
    )
    pod["metadata"]["annotations"] = dict(_STAYS)
    pod["spec"]["restartPolicy"] = "OnFailure"
    pod["spec"]["serviceAccountName"] = DEFAULT_ACCOUNT
    pod = _with_fields(spec, MASTER_ROLE, pod)
    if spec.cluster.job_account:
        pod["spec"]["serviceAccountName"] = naming.record_name(spec.job_name)
    elif spec.cluster.service_account:
        pod["spec"]["serviceAccountName"] = spec.cluster.service_account
    # Overrides the fields of all pods: without a token, the master could not create the other pods.
    pod["spec"]["automountServiceAccountToken"] = True
    return pod


def node_pod(spec: JobSpec, request: NodeRequest, *, owner: Document | None = None) -> Document:
    """Returns the pod of a node, with exactly the environment of the request."""
    pod = _pod(
        spec,
        role=request.role,
        name=naming.pod_name(spec, request.name),
        labels=naming.node_labels(spec.job_name, request.name, request.place),
        command=request.command,
        environment=request.environment,
        resources=_resources(spec, request.role, doublings=request.memory_doublings),
        priority=_priority(spec, request),
        owner=owner,
    )
    pod["spec"]["tolerations"] = [
        {
            "key": f"node.kubernetes.io/{trouble}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": _LOST_SECONDS,
        }
        for trouble in ("not-ready", "unreachable")
    ]
    if seconds := notice_seconds(spec, request.role):
        _give_notice(pod["spec"], seconds)
    return _with_fields(spec, request.role, pod)


def notice_seconds(spec: JobSpec, role: str) -> int:
    """Returns the seconds of notice. None for nodes of ours, which finish their batch at the signal, and for parameter
    servers of a program, which never end by themselves.
    """
    if spec.program != "command" or role in (MASTER_ROLE, "ps"):
        return 0
    grace = _fields(spec, role).get("terminationGracePeriodSeconds", GRACE_SECONDS)
    return min(NOTICE_SECONDS, int(grace) // 2)


def _give_notice(pod: Document, seconds: int) -> None:
    container = pod["containers"][0]
    said = {"path": "none", "fieldRef": {"fieldPath": f"metadata.annotations['{_NO_NOTICE_NAME}']"}}
    pod["volumes"].append({"name": "notice", "downwardAPI": {"items": [said]}})
    container["volumeMounts"].append({"name": "notice", "mountPath": NOTICE_FOLDER, "readOnly": True})
    script = f"i=0; while [ $i -lt {seconds} ] && ! [ -s {NOTICE_FOLDER}/none ]; do sleep 1; i=$((i+1)); done"
    # Where there is no shell, the signal comes at once.
    container["lifecycle"] = {"preStop": {"exec": {"command": ["sh", "-c", script]}}}


def secret_files(spec: JobSpec, *, serves: bool) -> dict[str, str]:
    """Returns the files of a node's credentials: to authenticate itself, and to verify other nodes."""
    files = {
        "ELASTICDL_TOKEN_FILE": f"{SECRET_FOLDER}/token",
        "ELASTICDL_CA_FILE": f"{SECRET_FOLDER}/ca.crt",
        "ELASTICDL_TLS_NAME": naming.record_name(spec.job_name),
    }
    if serves:
        files["ELASTICDL_CERT_FILE"] = f"{SECRET_FOLDER}/tls.crt"
        files["ELASTICDL_KEY_FILE"] = f"{SECRET_FOLDER}/tls.key"
    return files


def owner_references(owner: Document | None) -> list[Document]:
    """Returns the owner references that delete an object with its owner."""
    if owner is None or "uid" not in owner["metadata"]:
        return []
    return [
        {
            "apiVersion": owner.get("apiVersion", "v1"),
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": False,
        }
    ]


def _pod(
    spec: JobSpec,
    *,
    role: str,
    name: str,
    labels: dict[str, str],
    command: tuple[str, ...],
    environment: dict[str, str],
    resources: Document,
    priority: str,
    owner: Document | None,
) -> Document:
    cluster = spec.cluster
    serves = role == MASTER_ROLE or (role == "ps" and spec.program == "definition")
    volumes, mounts = volumes_and_mounts(spec, serves=serves)
    container: Document = {
        "name": role,
        "image": image_of(spec, role),
        "command": [escaped(word) for word in command],
        "env": _variables(spec, role, environment),
        "resources": resources,
        "volumeMounts": mounts,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": cluster.read_only_root_filesystem,
        },
        # The last lines of a program that failed tell why.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if cluster.image_pull_policy:
        container["imagePullPolicy"] = cluster.image_pull_policy
    pod: Document = {
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "shareProcessNamespace": True,
        "automountServiceAccountToken": False,
        # Else every pod would have variables for every service of the namespace.
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "runAsGroup": _USER,
            "fsGroup": _USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumes": volumes,
    }
    if cluster.image_pull_secret:
        pod["imagePullSecrets"] = [{"name": cluster.image_pull_secret}]
    if priority:
        pod["priorityClassName"] = priority
    metadata: Document = {"name": name, "namespace": cluster.namespace, "labels": labels}
    if references := owner_references(owner):
        metadata["ownerReferences"] = references
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


def image_of(spec: JobSpec, role: str) -> str:
    cluster = spec.cluster
    other = {MASTER_ROLE: "", "ps": cluster.ps_image}.get(role, cluster.worker_image)
    return other or cluster.image_name


def _variables(spec: JobSpec, role: str, environment: dict[str, str]) -> list[Document]:
    variables: list[Document] = [
        {"name": name, "value": escaped(value)} for name, value in environment.items()
    ]
    # Variables that a node sets itself take precedence.
    given = {
        name: SecretKey.of(name, text)
        for name, text in spec.nodes.secret_envs.items()
        if name not in environment
    }
    for name, found in given.items():
        reference = {"name": found.secret, "key": found.key}
        variables.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
    if spec.cluster.read_only_root_filesystem and "HOME" not in {**environment, **given}:
        # That of the image may not exist, or be read-only.
        variables.append({"name": "HOME", "value": HOME_FOLDER})
    if "MY_POD_IP" not in environment:
        variables.append({"name": "MY_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    if role == MASTER_ROLE:
        # A recreated pod has the same name. The UID distinguishes a master from its successors.
        variables.append(
            {"name": "ELASTICDL_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
        )
    if role != MASTER_ROLE and "ELASTICDL_THREADS" not in {**environment, **given}:
        # A part of a core counts as one; without a limit it is all that the machine has.
        limit = {"containerName": role, "resource": "limits.cpu", "divisor": "1"}
        variables.append({"name": "ELASTICDL_THREADS", "valueFrom": {"resourceFieldRef": limit}})
    return variables


def escaped(text: str) -> str:
    """Text that Kubernetes leaves as it is: it takes $(NAME) for a variable."""
    return text.replace("$", "$$")


def _resources(spec: JobSpec, role: str, *, doublings: int) -> Document:
    request, limit = spec.nodes.resource_request(role), spec.nodes.resource_limit(role)
    requests, limits = _texts(request), {**_texts(request), **_texts(limit)}
    for name, text in _texts(spec.nodes.default_resource_limit).items():
        if name not in limits:
            # Kubernetes takes a limit without a request for a request, too.
            requests[name], limits[name] = _NOTHING_REQUESTED, text
    if role == MASTER_ROLE and limit.cpu is None and request.cpu is not None:
        # All nodes wait for a master that is throttled, and it requests little.
        limits.pop("cpu", None)
    promised, most = grown_memory(request, limit, times=doublings, whole=role in _WHOLE_LIMIT)
    if promised is not None:
        requests["memory"] = promised.text
    if most is not None:
        limits["memory"] = most.text
    return {"requests": requests, "limits": limits}


def _texts(resources: Resources) -> dict[str, str]:
    return {name: quantity.text for name, quantity in resources.by_name().items()}


def _priority(spec: JobSpec, request: NodeRequest) -> str:
    text = spec.nodes.pod_priority(request.role)
    if not text or request.role != "worker":
        return text
    # By its place, so that a replacement is what the one before it was.
    return parse_priority(text).class_of(request.place, request.places)


def _with_fields(spec: JobSpec, role: str, pod: Document) -> Document:
    fields = _fields(spec, role)
    return add_to_pod(pod, fields) if fields else pod


def _fields(spec: JobSpec, role: str) -> Document:
    text = spec.cluster.cluster_spec_json
    return fields_of(parse_pod_fields(text), role) if text else {}
