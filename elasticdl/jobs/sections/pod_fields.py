"""Fields that a user adds to the pods of a job: `--cluster_spec` (a file) and `--cluster_spec_json`.

    pod_spec:                 # for all pods; master_spec, ps_spec, worker_spec, chief_spec, evaluator_spec for some
      labels: {team: vision}
      annotations: {...}
      env: [{name: HTTP_PROXY, value: ...}]
      nodeSelector: {disk: ssd}
      tolerations: [...]
      affinity: {...}
      serviceAccountName: reader              # the identity that a cloud gives it, say
      automountServiceAccountToken: true      # and the cluster's own token for it

What is not about labels, annotations or variables is a field of Kubernetes' PodSpec, by its own name. `metadata` and
`spec`, as in a pod's manifest, mean the same as `pod_spec`. What a job sets itself cannot be set here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from elasticdl.jobs.flags.names import DNS_NAME
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.flags.pairs import BadValue
from elasticdl.jobs.flags.yaml_nesting import check_nesting
from elasticdl.jobs.sections import reserved

PodFields = dict[str, dict[str, Any]]

_ALL = "pod_spec"
_ROLES = ("master", "ps", "worker", "chief", "evaluator")
_METADATA = ("labels", "annotations")
_SPEC = (
    "affinity",
    "automountServiceAccountToken",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "hostAliases",
    "hostNetwork",
    "imagePullSecrets",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "runtimeClassName",
    "schedulerName",
    "securityContext",
    "serviceAccountName",
    "setHostnameAsFQDN",
    "subdomain",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
)
_OTHER_SPELLINGS = {
    "image_pull_secrets": "imagePullSecrets",
    "node_selector": "nodeSelector",
    "serviceAccount": "serviceAccountName",
    "service_account": "serviceAccountName",
    "service_account_name": "serviceAccountName",
}
_KNOWN = (*_METADATA, "env", "volumeMounts", *_SPEC)
_KINDS: dict[str, type] = {
    **dict.fromkeys(
        ("labels", "annotations", "affinity", "dnsConfig", "nodeSelector", "overhead", "securityContext"),
        dict,
    ),
    **dict.fromkeys(
        (
            "env",
            "hostAliases",
            "imagePullSecrets",
            "tolerations",
            "topologySpreadConstraints",
            "volumeMounts",
            "volumes",
        ),
        list,
    ),
    **dict.fromkeys(
        ("automountServiceAccountToken", "enableServiceLinks", "hostNetwork", "setHostnameAsFQDN"), bool
    ),
    **dict.fromkeys(
        (
            "dnsPolicy",
            "preemptionPolicy",
            "runtimeClassName",
            "schedulerName",
            "serviceAccountName",
            "subdomain",
        ),
        str,
    ),
    "terminationGracePeriodSeconds": int,
}
_WORDS: dict[type, str] = {
    dict: "an object",
    list: "a list",
    bool: "true or false",
    str: "text",
    int: "a whole number",
}
# By what two entries of a list are the same entry, of which the later counts.
_KEYS = {"env": "name", "volumes": "name", "imagePullSecrets": "name", "volumeMounts": "mountPath"}
_OURS = {
    "containers": "a job makes its own container",
    "nodeName": "the scheduler chooses; nodeSelector and affinity tell it how",
    "priorityClassName": "that is --{master,ps,worker}_pod_priority",
    "restartPolicy": "the master replaces pods",
}
_LABEL_PREFIXES = ("elasticdl-",)


def parse_pod_fields(text: str) -> PodFields:
    """Parses fields by role, with `pod_spec` for all roles. YAML or JSON; raises `BadValue`."""
    try:
        document = json.loads(text) if text.lstrip().startswith("{") else _parse_yaml(text)
    except (ValueError, RecursionError) as error:
        raise BadValue(f"it is neither JSON nor YAML: {error}") from None
    if not isinstance(document, dict):
        raise BadValue("it must be an object with the key pod_spec")
    fields: PodFields = {}
    names = [_ALL, *(f"{role}_spec" for role in _ROLES), "metadata", "spec"]
    for key, value in document.items():
        if key == "service_spec":
            raise BadValue("service_spec cannot be given: nodes get the services' addresses when they start")
        if key not in names:
            raise BadValue(f"{key!r} is not one of {', '.join(names)}.{did_you_mean(str(key), names)}")
        if not isinstance(value, dict):
            raise BadValue(f"{key}: {value!r} is not an object")
        target = _ALL if key in ("metadata", "spec") else key
        fields[target] = _merged(fields.get(target, {}), _checked(key, value))
    return fields


def fields_of(fields: PodFields, role: str) -> dict[str, Any]:
    """Returns the fields of one role's pods, flat: labels, annotations, env, and fields of PodSpec."""
    return _merged(fields.get(_ALL, {}), fields.get(f"{role}_spec", {}))


def add_to_pod(pod: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """A pod's manifest with these fields: maps grow together, lists grow, all else is replaced."""
    metadata, spec = dict(pod["metadata"]), dict(pod["spec"])
    container = dict(spec["containers"][0])
    for name, value in fields.items():
        part = metadata if name in _METADATA else container if name in ("env", "volumeMounts") else spec
        part[name] = _joined(name, part.get(name), value)
    spec["containers"] = [container, *spec["containers"][1:]]
    return {**pod, "metadata": metadata, "spec": spec}


def _parse_yaml(text: str) -> Any:
    # Every process of a job knows the flags; only who is given YAML needs to load what reads it.
    import yaml

    try:
        check_nesting(text)
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _checked(where: str, given: Mapping[str, Any]) -> dict[str, Any]:
    allowed: Iterable[str] = {"metadata": _METADATA, "spec": ("env", "volumeMounts", *_SPEC)}.get(
        where, _KNOWN
    )
    checked: dict[str, Any] = {}
    for written, value in given.items():
        name = _OTHER_SPELLINGS.get(str(written), str(written))
        if name in _OURS:
            raise BadValue(f"{where}.{name} cannot be given: {_OURS[name]}")
        if name not in allowed:
            raise BadValue(
                f"{where}.{name} is not one of {', '.join(sorted(allowed))}.{did_you_mean(name, allowed)}"
            )
        _check_kind(f"{where}.{name}", value, _KINDS[name])
        if isinstance(value, list):
            _check_entries(f"{where}.{name}", name, value)
        if name == "nodeSelector":
            for label, text in value.items():
                _check_kind(f"{where}.{name}.{label}", text, str)
        if name == "terminationGracePeriodSeconds" and value < 0:
            raise BadValue(f"{where}.{name}: {value} is less than 0")
        if name == "serviceAccountName":
            _check_account(where, value)
        if name == "labels":
            for label in value:
                if label == "app" or str(label).startswith(_LABEL_PREFIXES):
                    raise BadValue(f"{where}.labels: {label} is set by the job and cannot be given")
        if name in _METADATA:
            value = {str(key): str(text) for key, text in value.items()}
        checked[name] = value
    return checked


def _check_kind(where: str, value: Any, kind: type) -> None:
    # To Python true is a number, too.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise BadValue(f"{where}: {value!r} is not {_WORDS[kind]}")


def _check_entries(where: str, name: str, entries: list[Any]) -> None:
    """Checks that a list holds objects, each with its distinguishing key, and none that the job sets itself."""
    for entry in entries:
        _check_kind(where, entry, dict)
        key = _KEYS.get(name)
        if key and not (isinstance(entry.get(key), str) and entry[key]):
            raise BadValue(f"{where}: {entry!r} has no {key}")
        if name == "env":
            if "value" in entry:
                _check_kind(f"{where}: {entry['name']}", entry["value"], str)
            if entry["name"] in reserved.VARIABLES:
                raise BadValue(f"{where}: {entry['name']} is set by the job and cannot be given")
        elif name == "volumes" and reserved.is_volume(entry["name"]):
            raise BadValue(
                f"{where}: the job has a volume of its own that is called {entry['name']}: choose another name"
            )
        elif name == "volumeMounts" and (because := reserved.why_not_there(entry["mountPath"])):
            raise BadValue(f"{where}: nothing can be mounted at {entry['mountPath']}: {because}")


def _check_account(where: str, name: str) -> None:
    try:
        DNS_NAME.check(name)
    except BadValue as problem:
        raise BadValue(f"{where}.serviceAccountName: {problem}") from None


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(first)
    for name, value in second.items():
        result[name] = _joined(name, result.get(name), value)
    return result


def _joined(name: str, before: Any, after: Any) -> Any:
    if isinstance(before, dict) and isinstance(after, dict):
        return _merged(before, after)
    if isinstance(before, list) and isinstance(after, list):
        key = _KEYS.get(name)
        new = {entry.get(key) for entry in after} if key else set()
        return [entry for entry in before if not key or entry.get(key) not in new] + after
    return after
