"""What users add to the pods of a job: which words there are, what is refused, and how it comes together."""

from __future__ import annotations

from typing import Any

import pytest

from elasticdl.jobs.flags.pairs import BadValue
from elasticdl.jobs.sections.pod_fields import add_to_pod, fields_of, parse_pod_fields

YAML = """
pod_spec:
  labels: {team: vision, cost: 7}
  tolerations: [{key: spot, operator: Exists}]
  env: [{name: A, value: all}, {name: B, value: all}]
worker_spec:
  labels: {team: speech}
  node_selector: {disk: ssd}
  env: [{name: A, value: worker}]
"""


def pod() -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "labels": {"app": "elasticdl"}},
        "spec": {
            "containers": [{"name": "worker", "env": [{"name": "A", "value": "ours"}]}],
            "tolerations": [{"key": "lost"}],
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000},
        },
    }


def test_roles_add_to_what_all_have() -> None:
    fields = parse_pod_fields(YAML)
    assert fields_of(fields, "ps") == fields_of(fields, "master")
    worker = fields_of(fields, "worker")
    assert worker["labels"] == {"team": "speech", "cost": "7"}
    assert worker["nodeSelector"] == {"disk": "ssd"}
    assert worker["env"] == [{"name": "B", "value": "all"}, {"name": "A", "value": "worker"}]


def test_a_pod_keeps_what_it_had() -> None:
    before = pod()
    after = add_to_pod(before, fields_of(parse_pod_fields(YAML), "worker"))
    assert after["metadata"]["labels"] == {"app": "elasticdl", "team": "speech", "cost": "7"}
    assert [t["key"] for t in after["spec"]["tolerations"]] == ["lost", "spot"]
    env = after["spec"]["containers"][0]["env"]
    assert {entry["name"]: entry["value"] for entry in env} == {"A": "worker", "B": "all"}
    assert before == pod()


def test_the_security_context_can_be_changed_in_part() -> None:
    fields = parse_pod_fields('{"spec": {"securityContext": {"runAsUser": 7}}}')
    after = add_to_pod(pod(), fields_of(fields, "ps"))
    assert after["spec"]["securityContext"] == {"runAsNonRoot": True, "runAsUser": 7}


def test_as_in_a_manifest() -> None:
    plain = parse_pod_fields("metadata: {labels: {a: b}}\nspec: {schedulerName: mine}")
    assert plain == parse_pod_fields("pod_spec: {labels: {a: b}, schedulerName: mine}")


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("{", "neither JSON nor YAML"),
        ("a: [", "neither JSON nor YAML"),
        ("just words", "must be an object"),
        ("workerspec: {}", "Did you mean worker_spec"),
        ("pod_spec: {nodeselector: {}}", "Did you mean nodeSelector"),
        ("pod_spec: []", "is not an object"),
        ("pod_spec: {tolerations: {}}", "is not a list"),
        ("pod_spec: {containers: []}", "a job makes its own container"),
        ("ps_spec: {priorityClassName: high}", "_pod_priority"),
        ("pod_spec: {labels: {elasticdl-job-name: x}}", "set by the job"),
        ("spec: {labels: {a: b}}", "spec.labels is not one of"),
        ("worker_spec: {serviceAccountName: 7}", "worker_spec.serviceAccountName: 7 is not text"),
        ("worker_spec: {serviceAccountName: A b}", "serviceAccountName: 'A b' is not a name for Kubernetes"),
        ("pod_spec: {automountServiceAccountToken: maybe}", "'maybe' is not true or false"),
        ("pod_spec: {terminationGracePeriodSeconds: soon}", "'soon' is not a whole number"),
        ("service_spec: {clusterIP: None}", "service_spec cannot be given"),
        ("pod_spec: {env: [A]}", "pod_spec.env: 'A' is not an object"),
        ("pod_spec: {env: [{value: x}]}", "pod_spec.env: {'value': 'x'} has no name"),
        ("pod_spec: {env: [{name: A, value: 7}]}", "pod_spec.env: A: 7 is not text"),
        ("pod_spec: {volumes: [x]}", "pod_spec.volumes: 'x' is not an object"),
        ("pod_spec: {volumes: [{emptyDir: {}}]}", "pod_spec.volumes: {'emptyDir': {}} has no name"),
        ("pod_spec: {volumeMounts: [{name: x}]}", "pod_spec.volumeMounts: {'name': 'x'} has no mountPath"),
        ("pod_spec: {imagePullSecrets: [mine]}", "pod_spec.imagePullSecrets: 'mine' is not an object"),
        ("pod_spec: {tolerations: [spot]}", "pod_spec.tolerations: 'spot' is not an object"),
        ("pod_spec: {nodeSelector: {gpu: true}}", "pod_spec.nodeSelector.gpu: True is not text"),
        (
            "pod_spec: {terminationGracePeriodSeconds: abc}",
            "terminationGracePeriodSeconds: 'abc' is not a whole number",
        ),
        ("pod_spec: {terminationGracePeriodSeconds: true}", "True is not a whole number"),
        ("pod_spec: {terminationGracePeriodSeconds: -1}", "-1 is less than 0"),
        ("pod_spec: {schedulerName: []}", "is not text"),
    ],
)
def test_invalid_pod_fields_are_rejected_with_reason(text: str, because: str) -> None:
    with pytest.raises(BadValue, match=because):
        parse_pod_fields(text)


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("pod_spec: {env: [{name: MASTER_ADDR, value: x}]}", "pod_spec.env: MASTER_ADDR"),
        (
            "worker_spec: {env: [{name: ELASTICDL_TOKEN_FILE, value: x}]}",
            "worker_spec.env: ELASTICDL_TOKEN_FILE",
        ),
        ("pod_spec: {volumes: [{name: secret, emptyDir: {}}]}", "pod_spec.volumes: .* called secret"),
        ("pod_spec: {volumes: [{name: volume-0, emptyDir: {}}]}", "pod_spec.volumes: .* called volume-0"),
        (
            "pod_spec: {volumeMounts: [{name: mine, mountPath: /var/run/elasticdl/job/}]}",
            "pod_spec.volumeMounts: nothing can be mounted at /var/run/elasticdl/job/",
        ),
        (
            "pod_spec: {volumeMounts: [{name: mine, mountPath: /var/run/elasticdl/notice}]}",
            "pod_spec.volumeMounts: nothing can be mounted at /var/run/elasticdl/notice",
        ),
        (
            "master_spec: {volumeMounts: [{name: mine, mountPath: /var/lib/elasticdl/}]}",
            "master_spec.volumeMounts: nothing can be mounted at /var/lib/elasticdl/: .* --journal_dir",
        ),
    ],
)
def test_fields_set_by_the_job_are_rejected(text: str, entry: str) -> None:
    with pytest.raises(BadValue, match=entry):
        parse_pod_fields(text)


def test_volumes_and_mounts_of_the_users_own() -> None:
    fields = parse_pod_fields(
        "pod_spec: {volumes: [{name: mine, emptyDir: {}}], volumeMounts: [{name: mine, mountPath: /mine}]}"
    )
    after = add_to_pod(pod(), fields_of(fields, "worker"))
    assert after["spec"]["volumes"] == [{"name": "mine", "emptyDir": {}}]
    assert after["spec"]["containers"][0]["volumeMounts"] == [{"name": "mine", "mountPath": "/mine"}]
