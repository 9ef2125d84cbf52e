"""The cluster that kubectl is configured for: whether it answers, and whether this user may run jobs there.

Without a configuration nothing is wrong: jobs run on this machine. Permissions are asked of the API server itself
(SelfSubjectAccessReview), one request each, at the same time; nothing is created.
"""

from __future__ import annotations

import asyncio

from elasticdl.catalog.lookup import is_cluster_configured
from elasticdl.doctor.finding import Finding, Level
from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.api_resources import POD_METRICS, TRAINING_JOB, Resource
from elasticdl.platforms.kubernetes.client import Cluster

_SUBJECT = "cluster"
_TIMEOUT_SECONDS = 10.0
_MANIFESTS = "elasticdl/manifests"
_METRICS_SERVER = "https://github.com/kubernetes-sigs/metrics-server/releases/latest/download/components.yaml"
_ACCESS_REVIEW = Resource(
    kind="SelfSubjectAccessReview",
    group="authorization.k8s.io",
    plural="selfsubjectaccessreviews",
    namespaced=False,
)
# The rights needed to submit, watch, scale, stop and delete a job: group, resource, verbs.
NEEDED = (
    ("", "configmaps", ("get", "list", "create", "patch", "delete")),
    ("", "pods", ("get", "list", "create", "delete")),
    ("", "pods/log", ("get",)),
    ("", "secrets", ("create", "delete")),
    ("", "services", ("create", "delete")),
    ("networking.k8s.io", "networkpolicies", ("create", "delete")),
)


def check_cluster(namespace: str = "", *, timeout_seconds: float = _TIMEOUT_SECONDS) -> list[Finding]:
    """`namespace`: without it, the namespace of kubectl's current context is used. `timeout_seconds`: how long the
    cluster may take to answer.
    """
    if not namespace and not is_cluster_configured():
        text = "None is configured; jobs run on this machine."
        fix = "export KUBECONFIG=/path/to/the/configuration/of/kubectl"
        return [Finding(subject=_SUBJECT, level=Level.ABSENT, text=text, fix=fix)]
    try:
        return asyncio.run(_check(namespace, timeout_seconds))
    except UserError as error:
        # Also: a package is missing, or the configuration cannot be used. The hint says what to do.
        fix = error.hint or "kubectl cluster-info (shows whether kubectl reaches it)"
        return [Finding(subject=_SUBJECT, level=Level.ERROR, text=error.message, fix=fix)]


async def _check(namespace: str, timeout_seconds: float) -> list[Finding]:
    from elasticdl.platforms.kubernetes.kubeconfig import current_namespace

    async with Cluster.connect(
        namespace=namespace or current_namespace(), patience=timeout_seconds
    ) as cluster:
        found = [await _check_permissions(cluster)]
        has_training_jobs, has_metrics = await asyncio.gather(
            cluster.is_served(TRAINING_JOB), cluster.is_served(POD_METRICS)
        )
    found.append(
        Finding(subject="TrainingJobs", level=Level.OK, text="installed")
        if has_training_jobs
        else Finding(
            subject="TrainingJobs",
            level=Level.ABSENT,
            text="not installed: jobs keep their size, and none waits for another",
            fix=f"kubectl apply -f {_MANIFESTS}/trainingjob-crd.yaml -f {_MANIFESTS}/edl-controller.yaml",
        )
    )
    found.append(
        Finding(subject="metrics-server", level=Level.OK, text="installed")
        if has_metrics
        else Finding(
            subject="metrics-server",
            level=Level.ABSENT,
            text="not installed: `elasticdl jobs top` knows neither processors nor memory",
            fix=f"kubectl apply -f {_METRICS_SERVER}",
        )
    )
    return found


async def _check_permissions(cluster: Cluster) -> Finding:
    asked = [(group, resource, verb) for group, resource, verbs in NEEDED for verb in verbs]
    allowed = await asyncio.gather(*(_is_allowed(cluster, *one) for one in asked))
    missing: dict[str, list[str]] = {}
    for (_, resource, verb), is_allowed in zip(asked, allowed, strict=True):
        if not is_allowed:
            missing.setdefault(resource, []).append(verb)
    where = f"namespace {cluster.namespace}"
    if not missing:
        return Finding(subject=_SUBJECT, level=Level.OK, text=f"answers, and jobs may be run in {where}")
    verbs = "; ".join(f"{resource}: {', '.join(verbs)}" for resource, verbs in missing.items())
    rules = sorted({verb for verbs in missing.values() for verb in verbs})
    # kubectl gives all verbs of a role to all of its resources.
    role = f"kubectl create role elasticdl-user --verb={','.join(rules)} --resource={','.join(missing)}"
    return Finding(
        subject=_SUBJECT,
        level=Level.ERROR,
        text=f"answers, and refuses what jobs need in {where}: {verbs}",
        fix=f"{role} --namespace={cluster.namespace}, and a rolebinding to it for your user (by an administrator)",
    )


async def _is_allowed(cluster: Cluster, group: str, resource: str, verb: str) -> bool:
    name, _, subresource = resource.partition("/")
    attributes = {"namespace": cluster.namespace, "group": group, "resource": name, "verb": verb}
    if subresource:
        attributes["subresource"] = subresource
    review = {
        "apiVersion": _ACCESS_REVIEW.api_version,
        "kind": _ACCESS_REVIEW.kind,
        "metadata": {},
        "spec": {"resourceAttributes": attributes},
    }
    answer = await cluster.create(review, resource=_ACCESS_REVIEW)
    return bool((answer.get("status") or {}).get("allowed"))
