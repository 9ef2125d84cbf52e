"""The allowed connections from and to the pods of a job: NetworkPolicies, as pure functions of a JobSpec.

In: pods of the job. Out: pods of the job, DNS, and the targets of `--egress`. Pods that have an account of the cluster
(the master, and others by `--cluster_spec`) also reach API servers. The addresses of these are not known here, and
change; so their usual ports are open, at any address.

Failure modes
    Without a network plugin that enforces NetworkPolicies nothing is restricted. They do not hold for pods with
    `hostNetwork`. An API server at another port than the usual ones: the master cannot reach it, and waits;
    `--egress` opens that port. Data at an address that `--egress` does not name: connections time out.
"""

from __future__ import annotations

from typing import Any

from elasticdl.jobs.sections.egress import Target
from elasticdl.jobs.sections.placement import ROLES
from elasticdl.jobs.sections.pod_fields import fields_of, parse_pod_fields
from elasticdl.jobs.spec import JobSpec
from elasticdl.platforms.kubernetes import naming
from elasticdl.platforms.platform import MASTER_ROLE

Document = dict[str, Any]

_DNS_PORT = 53
# The ports of services in front of API servers, and of kubeadm, minikube and MicroK8s behind them.
_API_PORTS = (443, 6443, 8443, 16443)


def network_policies(spec: JobSpec) -> list[Document]:
    name = naming.record_name(spec.job_name)
    these = {"matchLabels": {naming.JOB_LABEL: spec.job_name}}
    pods = [{"podSelector": these}]
    all_pods = {
        "podSelector": these,
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": pods}],
        "egress": [
            {"to": pods},
            # Wherever the cluster has its DNS: it may be on the nodes.
            {"ports": [_port("UDP", _DNS_PORT), _port("TCP", _DNS_PORT)]},
            *(_rule(target) for target in spec.cluster.egress),
        ],
    }
    roles = {"key": naming.ROLE_LABEL, "operator": "In", "values": _roles_with_account(spec)}
    to_api_servers = {
        "podSelector": {**these, "matchExpressions": [roles]},
        "policyTypes": ["Egress"],
        "egress": [{"ports": [_port("TCP", port) for port in _API_PORTS]}],
    }
    return [_policy(spec, name, all_pods), _policy(spec, f"{name}-api", to_api_servers)]


def _roles_with_account(spec: JobSpec) -> list[str]:
    fields = parse_pod_fields(spec.cluster.cluster_spec_json or "{}")
    return [
        role
        for role in ROLES
        if role == MASTER_ROLE or fields_of(fields, role).get("automountServiceAccountToken")
    ]


def _rule(target: Target) -> Document:
    if target.is_any:
        return {}
    peer = {"to": [{"ipBlock": {"cidr": target.network}}]}
    return {**peer, "ports": [_port("TCP", target.port)]} if target.port else peer


def _port(protocol: str, number: int) -> Document:
    return {"protocol": protocol, "port": number}


def _policy(spec: JobSpec, name: str, policy: Document) -> Document:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name,
            "namespace": spec.cluster.namespace,
            "labels": naming.labels(spec.job_name, naming.JOB_ROLE),
        },
        "spec": policy,
    }
