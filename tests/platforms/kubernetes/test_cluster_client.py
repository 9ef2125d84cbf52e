"""The Kubernetes API client against restarts, overload, broken connections and expired resource versions."""

from __future__ import annotations

import importlib
import json
import math
from typing import Any

import pytest

from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.client import Cluster, ClusterAway, ClusterError
from elasticdl.platforms.kubernetes.watch import Asked, Change, Synced, watch
from tests.platforms.kubernetes.scripted_server import (
    HANG_UP,
    Reply,
    access_to,
    config_map,
    listing,
    play,
    refusal,
    reply,
    watch_events,
)


@pytest.mark.parametrize(
    "trouble",
    [
        HANG_UP,
        refusal(429, "TooManyRequests", "slow down", Retry_After="0"),
        refusal(503, "ServiceUnavailable", "starting"),
        refusal(500, "InternalError", "etcdserver: leader changed"),
    ],
)
def test_passing_trouble_is_waited_out(trouble: Reply) -> None:
    async def scenario(cluster: Cluster) -> None:
        found = await cluster.get("ConfigMap", "a")
        assert found is not None
        assert found["data"] == {"k": "v"}

    asked = play([trouble, trouble, reply(200, config_map("a", 1, k="v"))], scenario)
    assert [path for _, path, _ in asked] == ["/api/v1/namespaces/lab/configmaps/a"] * 3


def test_a_person_does_not_wait_for_ever() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ClusterAway, match="does not answer"):
            await cluster.get("Pod", "a")

    play([HANG_UP] * 50, scenario, patience=0.3)


NO_RIGHT = 'pods is forbidden: User "me" cannot create resource "pods" in API group "" in the namespace "lab"'


def test_invalid_request_raises_at_once_with_kubernetes_message() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ClusterError, match=NO_RIGHT) as refused:
            await cluster.create({"kind": "Pod", "metadata": {"name": "x"}})
        assert (refused.value.status, refused.value.reason) == (403, "Forbidden")
        assert "elasticdl-rbac.yaml" in refused.value.hint
        assert isinstance(refused.value, UserError)

    assert len(play([refusal(403, "Forbidden", NO_RIGHT)], scenario)) == 1


@pytest.mark.parametrize("job", ["a", "quota-1"])
@pytest.mark.parametrize(
    ("words", "no_room"),
    [
        ("exceeded quota: team, requested: cpu=4, used: cpu=8, limited: cpu=10", True),
        ("failed quota: team: must specify limits.cpu", True),
        ("status unknown for quota: team, resources: pods", True),
        ("no PriorityClass with name high was found", False),
        ('violates PodSecurity "restricted:latest": runAsNonRoot != true', False),
    ],
)
def test_forbidden_for_another_reason_than_rights_has_no_hint(words: str, no_room: bool, job: str) -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ClusterError, match="is forbidden") as refused:
            await cluster.create({"kind": "Pod", "metadata": {"name": "x"}})
        assert refused.value.hint == ""
        assert refused.value.no_room is no_room

    play([refusal(403, "Forbidden", f'pods "elasticdl-{job}-worker-0" is forbidden: {words}')], scenario)


def test_credentials_that_are_not_accepted() -> None:
    """A master's are right, whatever a server says that has just started; a person's may be wrong."""
    refused = refusal(401, "Unauthorized", "Unauthorized")

    async def master(cluster: Cluster) -> None:
        assert await cluster.get("ConfigMap", "a") is not None

    assert len(play([refused, refused, reply(200, config_map("a", 1))], master, patience=math.inf)) == 3

    async def person(cluster: Cluster) -> None:
        with pytest.raises(ClusterError, match="does not accept the credentials: Unauthorized"):
            await cluster.get("ConfigMap", "a")

    assert len(play([refused], person)) == 1


def test_absent_object_is_none() -> None:
    async def scenario(cluster: Cluster) -> None:
        assert await cluster.get("Pod", "x") is None
        assert await cluster.patch("Pod", "x", {}) is None
        assert await cluster.delete("Pod", "x") is None

    play([refusal(404, "NotFound", "no")] * 3, scenario)


def test_creation_with_lost_response_returns_own_object() -> None:
    document = {"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}}
    mine = {"kind": "ConfigMap", **config_map("a", 7, k="v")}
    exists = refusal(409, "AlreadyExists", "there")

    async def scenario(cluster: Cluster) -> None:
        made = await cluster.create(document)
        assert made["metadata"]["resourceVersion"] == "7"
        # An object that another client created is a conflict.
        with pytest.raises(ClusterError, match="there"):
            await cluster.create(document)
        with pytest.raises(ClusterError, match="there"):
            await cluster.create(document)

    other = {"kind": "ConfigMap", **config_map("a", 8, k="other")}
    play([HANG_UP, exists, reply(200, mine), exists, HANG_UP, exists, reply(200, other)], scenario)


def test_equal_object_submitted_by_another_client_is_not_taken_for_ours() -> None:
    def submitted(by: str) -> dict[str, Any]:
        document = {"kind": "ConfigMap", **config_map("a", 7, k="v")}
        document["metadata"]["annotations"] = {"submission": by}
        return document

    async def scenario(cluster: Cluster) -> None:
        assert await cluster.create(submitted("me")) == submitted("me")
        with pytest.raises(ClusterError, match="there"):
            await cluster.create(submitted("me"))

    exists = refusal(409, "AlreadyExists", "there")
    away = refusal(503, "ServiceUnavailable", "starting")
    play([away, exists, reply(200, submitted("me")), away, exists, reply(200, submitted("you"))], scenario)


def owned(owner: str, resources: dict[str, Any], **more: str) -> dict[str, Any]:
    metadata = {"name": "p", "labels": {"job": "j"}, "ownerReferences": [{"uid": owner}], **more}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"resources": resources}]}}


@pytest.mark.parametrize(
    ("there", "ours"),
    [
        # The cluster writes amounts its own way and leaves out what is empty.
        (owned("job", {"limits": {"cpu": "200m"}}, uid="u"), True),
        (owned("another of that name", {"limits": {"cpu": "0.2"}, "requests": {}}), False),
        # The one before it, on its way out.
        (owned("job", {"limits": {"cpu": "200m"}}, deletionTimestamp="2026-11-16T05:35:09Z"), False),
    ],
)
def test_existing_object_is_accepted_if_owned_by_the_job(there: dict[str, Any], ours: bool) -> None:
    document = owned("job", {"limits": {"cpu": "0.2"}, "requests": {}})

    async def scenario(cluster: Cluster) -> None:
        if ours:
            assert await cluster.create(document) == there
        else:
            with pytest.raises(ClusterError, match="there"):
                await cluster.create(document)

    play([HANG_UP, refusal(409, "AlreadyExists", "there"), reply(200, there)], scenario)


def test_internal_server_error_raises_with_its_message() -> None:
    """At once where the caller asks for that, otherwise after the client's patience: the server does answer."""
    error = refusal(500, "InternalError", "failed calling webhook")
    document = {"kind": "Pod", "metadata": {"name": "x"}}

    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ClusterError, match="failed calling webhook") as refused:
            await cluster.create(document, errors_borne=2)
        assert refused.value.status == 500

    assert len(play([error] * 3, scenario)) == 3

    async def impatient(cluster: Cluster) -> None:
        with pytest.raises(ClusterError, match="failed calling webhook"):
            await cluster.create(document)

    play([error] * 50, impatient, patience=0.3)


def test_deletion_sends_grace_and_uid() -> None:
    async def scenario(cluster: Cluster) -> None:
        await cluster.delete("Pod", "x", grace_seconds=0, uid="7")

    ((method, _, body),) = play([reply(200, {})], scenario)
    assert method == "DELETE"
    assert json.loads(body) == {
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "7"},
    }


async def seen(cluster: Cluster, count: int) -> list[tuple[str, bool, dict[str, str]]]:
    changes: list[tuple[str, bool, dict[str, str]]] = []
    async for change in watch(cluster, "ConfigMap", labels={"job": "j"}):
        if isinstance(change, Change):
            changes.append((change.name, change.gone, change.document["data"]))
        if len(changes) == count:
            break
    return changes


def test_a_watch_goes_on_where_it_broke_off() -> None:
    """Ended by the server, cut in the middle of a line, refused while the server starts, throttled."""

    async def scenario(cluster: Cluster) -> None:
        assert await seen(cluster, 4) == [
            ("a", False, {"k": "1"}),
            ("a", False, {"k": "2"}),
            ("a", False, {"k": "3"}),
            ("a", True, {"k": "3"}),
        ]

    asked = play(
        [
            listing(1, config_map("a", 1, k="1")),
            watch_events(("MODIFIED", config_map("a", 2, k="2"))),
            watch_events(("BOOKMARK", config_map("", 5)), ("MODIFIED", config_map("a", 6, k="3")), cut=True),
            refusal(503, "ServiceUnavailable", "starting"),
            HANG_UP,
            refusal(429, "TooManyRequests", "slow down"),
            watch_events(("MODIFIED", config_map("a", 6, k="3")), ("DELETED", config_map("a", 7, k="3"))),
        ],
        scenario,
    )
    versions = [
        path.split("resourceVersion=")[1].split("&")[0] for _, path, _ in asked if "watch=true" in path
    ]
    assert versions == ["1", "2", "5", "5", "5", "5"]
    assert all("labelSelector=job%3Dj" in path for _, path, _ in asked)


@pytest.mark.parametrize(
    "expired",
    [
        refusal(410, "Expired", "too old resource version"),
        watch_events(("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})),
    ],
)
def test_expired_resource_version_relists(expired: Reply) -> None:
    """The new list yields what was deleted, added and changed meanwhile; nothing for unchanged objects."""

    async def scenario(cluster: Cluster) -> None:
        assert await seen(cluster, 7) == [
            ("same", False, {}),
            ("gone", False, {"k": "1"}),
            ("other", False, {"k": "1"}),
            ("gone", True, {"k": "1"}),
            ("other", True, {"k": "1"}),
            ("other", False, {"k": "2"}),
            ("new", False, {}),
        ]

    same = config_map("same", 1)
    play(
        [
            listing(3, same, config_map("gone", 2, k="1"), config_map("other", 3, k="1")),
            expired,
            listing(9, same, config_map("other", 8, uid="another", k="2"), config_map("new", 9)),
        ],
        scenario,
    )


def test_watch_without_permission_raises() -> None:
    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(ClusterError, match="cannot list"):
            await seen(cluster, 1)

    play([refusal(403, "Forbidden", "cannot list configmaps")], scenario)


def test_every_list_is_marked() -> None:
    async def scenario(cluster: Cluster) -> None:
        marks: list[object] = []
        async for change in watch(cluster, "ConfigMap"):
            marks.append(change.name if isinstance(change, Change) else type(change))
            if len(marks) == 6:
                break
        assert marks == [Asked, "a", Synced, Asked, "b", Synced]

    there = [config_map(name, version) for version, name in enumerate("ab", start=1)]
    play([listing(1, *there[:1]), refusal(410, "Expired", "too old"), listing(2, *there)], scenario)


def test_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(importlib, "import_module", missing)

    async def scenario(cluster: Cluster) -> None:
        with pytest.raises(UserError, match="need the package httpx") as raised:
            await cluster.get("Pod", "x")
        assert "cryptography" in raised.value.hint

    play([], scenario)


def test_server_time_advances_between_answers_that_carry_a_date() -> None:
    """By our own clock only how much of it has passed is known, not what time it is."""
    passed = 100.0

    async def scenario(connected: Cluster) -> None:
        nonlocal passed
        access = access_to(int(connected.server.rpartition(":")[2]))
        async with Cluster(access, patience=60.0, clock=lambda: passed) as cluster:
            times = [cluster.now]
            await cluster.get("ConfigMap", "a")
            times.append(cluster.now)
            passed += 30.0
            times.append(cluster.now)
            # One that does not say says nothing against it.
            await cluster.get("ConfigMap", "a")
            times.append(cluster.now)
            assert times == [None, 1_800_000_000.0, 1_800_000_030.0, 1_800_000_030.0]

    there = reply(200, config_map("a", 1), Date="Fri, 15 Jan 2027 08:00:00 GMT")
    play([there, reply(200, config_map("a", 1))], scenario)
