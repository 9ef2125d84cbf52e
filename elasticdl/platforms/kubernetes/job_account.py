"""An account for the master of one job (`--job_account`), with a Role that names the job's own objects where it can.

The account `elasticdl` of a namespace serves all jobs there, so its Role is for all objects of some kinds: RBAC selects
none by label. A Role for one job can name the job record, and the Services of the job as far as its sizes are
bounded. Rights to create cannot be limited to names. Pods get new names whenever they are replaced, so rights to pods
are for all of the namespace.

Failure modes
    Only who may make Roles, and has the rights that are in them, can submit such a job (the role `admin`, say); the
    API server refuses others.
"""

from __future__ import annotations

from typing import Any

from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes import naming

Document = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"


def job_account(spec: JobSpec) -> list[Document]:
    """Returns the account, its Role and what binds it to the Role; nothing for a job without."""
    if not spec.cluster.job_account:
        return []
    name = naming.record_name(spec.job_name)
    subject = {"kind": "ServiceAccount", "name": name, "namespace": spec.cluster.namespace}
    role = {"apiGroup": _RBAC, "kind": "Role", "name": name}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", **_metadata(spec)},
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", **_metadata(spec), "rules": _rules(spec)},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            **_metadata(spec),
            "subjects": [subject],
            "roleRef": role,
        },
    ]


def _rules(spec: JobSpec) -> list[Document]:
    record, services = naming.record_name(spec.job_name), _service_names(spec)
    return [
        _rule("pods", "get", "list", "watch", "create", "patch", "delete"),
        _rule("services", "create"),
        _rule("services", "get", "patch", names=services),
        _rule("configmaps", "get", "list", "watch", "patch", names=[record]),
        _rule("events", "list"),
    ]


def _service_names(spec: JobSpec) -> list[str]:
    """Returns the names of the job's Services, or none if their number is unlimited."""
    nodes, is_program = spec.nodes, spec.program == "command"
    places = {"ps": nodes.num_ps if is_program else nodes.range_of("ps")[1] if nodes.num_ps else 0}
    if spec.addressed:
        places |= {
            "worker": nodes.range_of("worker")[1],
            "chief": nodes.num_chief,
            "evaluator": nodes.num_evaluator,
        }
    names = [naming.master_service_name(spec.job_name)]
    for role, count in places.items():
        if count is None:
            return []
        names += [naming.place_service_name(spec, role, place) for place in range(count)]
    return names


def _rule(resource: str, *verbs: str, names: list[str] | None = None) -> Document:
    rule: Document = {"apiGroups": [""], "resources": [resource], "verbs": [*verbs]}
    return {**rule, "resourceNames": names} if names else rule


def _metadata(spec: JobSpec) -> Document:
    return {
        "metadata": {
            "name": naming.record_name(spec.job_name),
            "namespace": spec.cluster.namespace,
            "labels": naming.labels(spec.job_name, naming.JOB_ROLE),
        }
    }
