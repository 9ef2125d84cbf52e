"""Kinds of Kubernetes objects: where the API server keeps them, and whether they belong to a namespace.

The kinds that ElasticDL uses are known by name. For any other, make a `Resource` of its group, version and plural; the
client takes either.
"""

from __future__ import annotations

from dataclasses import dataclass

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean

# The scope of all namespaces together, as the Kubernetes API writes it.
ALL_NAMESPACES = ""


@dataclass(frozen=True, kw_only=True)
class Resource:
    kind: str
    # "" is the core group.
    group: str = ""
    version: str = "v1"
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Returns the value of `apiVersion` in documents."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str, name: str = "", subresource: str = "") -> str:
        """Returns the path of one object, or of all of the scope.

        Raises:
            ValueError: one object of a namespaced kind is asked for in all namespaces.
        """
        if name and self.namespaced and namespace == ALL_NAMESPACES:
            raise ValueError(
                f"{self.kind} {name} is in one namespace; choose it with Cluster.in_namespace()."
            )
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace != ALL_NAMESPACES else ""
        rest = "".join(f"/{part}" for part in (name, subresource) if part)
        return f"{root}{scope}/{self.plural}{rest}"


TRAINING_JOB = Resource(kind="TrainingJob", group="elasticdl.org", plural="trainingjobs")
# Documents that were written for PaddlePaddle EDL.
PADDLE_TRAINING_JOB = Resource(kind="TrainingJob", group="paddlepaddle.org", plural="trainingjobs")
# Served where metrics-server, or an adapter in its place, is installed.
POD_METRICS = Resource(kind="PodMetrics", group="metrics.k8s.io", version="v1beta1", plural="pods")

_RESOURCES = {
    resource.kind: resource
    for resource in (
        Resource(kind="ConfigMap", plural="configmaps"),
        Resource(
            kind="CustomResourceDefinition",
            group="apiextensions.k8s.io",
            plural="customresourcedefinitions",
            namespaced=False,
        ),
        Resource(kind="Event", plural="events"),
        Resource(kind="Lease", group="coordination.k8s.io", plural="leases"),
        Resource(kind="NetworkPolicy", group="networking.k8s.io", plural="networkpolicies"),
        Resource(kind="Node", plural="nodes", namespaced=False),
        Resource(kind="Pod", plural="pods"),
        Resource(kind="PriorityClass", group="scheduling.k8s.io", plural="priorityclasses", namespaced=False),
        Resource(kind="Role", group="rbac.authorization.k8s.io", plural="roles"),
        Resource(kind="RoleBinding", group="rbac.authorization.k8s.io", plural="rolebindings"),
        Resource(kind="Secret", plural="secrets"),
        Resource(kind="Service", plural="services"),
        Resource(kind="ServiceAccount", plural="serviceaccounts"),
        Resource(
            kind="ValidatingWebhookConfiguration",
            group="admissionregistration.k8s.io",
            plural="validatingwebhookconfigurations",
            namespaced=False,
        ),
        TRAINING_JOB,
    )
}


def resource_of(kind: str | Resource) -> Resource:
    """Raises `UserError` for a kind that is not known by name."""
    if isinstance(kind, Resource):
        return kind
    if kind not in _RESOURCES:
        raise UserError(
            f"The Kubernetes kind {kind!r} is not known.{did_you_mean(kind, _RESOURCES)}",
            hint="Describe it by a Resource: its group, version and plural.",
        )
    return _RESOURCES[kind]
