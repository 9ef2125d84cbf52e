"""Access by the rights of the cluster: a user's own token decides who it is (TokenReview) and what they may do
(SubjectAccessReview).

    all jobs, their metrics          list configmaps, in the namespace of the dashboard
    one job                          get configmaps, in the namespace that is named
    logs                             get pods/log, there
    scale, stop                      patch configmaps and trainingjobs, there
    resume, delete                   create, delete configmaps and trainingjobs, there
    the cluster                      list nodes, pods and trainingjobs, of all namespaces

A page exchanges the token for a cookie with a random name of the session, which is in the memory of this process alone.
Reviews are remembered for some seconds; streams end after some minutes and are opened again, so that a right that was
taken away is gone by then.

Failure modes
    The API server does not answer, or the dashboard's own account may not ask: 503, and nothing is shown.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Any, Generic, TypeVar

from starlette.datastructures import QueryParams

from elasticdl.dashboard.server.access import SESSION_PATH, Refusal
from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.api_resources import PADDLE_TRAINING_JOB, TRAINING_JOB, Resource
from elasticdl.platforms.kubernetes.client import Cluster, Document
from elasticdl.platforms.kubernetes.naming import record_name

_TOKEN_REVIEW = Resource(
    kind="TokenReview", group="authentication.k8s.io", plural="tokenreviews", namespaced=False
)
_ACCESS_REVIEW = Resource(
    kind="SubjectAccessReview", group="authorization.k8s.io", plural="subjectaccessreviews", namespaced=False
)
_REVIEW_SECONDS = 20.0
# A page waits meanwhile.
_PATIENCE_SECONDS = 5.0
_SESSION_SECONDS = 8 * 3600.0
# Sessions, and reviews of each kind, that are remembered.
_MOST_KEPT = 2048
# Tokens of service accounts have about a thousand bytes, those of identity providers some thousands.
_LONGEST_TOKEN = 16 * 1024
_JOB_PATH = re.compile(r"/api/jobs/([^/]+)(?:/(stream|logs|logs/stream|actions/([a-z]+)))?")
_LISTS = ("/api/jobs", "/api/stream", "/api/metrics")
_CLUSTER_PATHS = ("/api/cluster", "/api/cluster/stream", "/api/cluster/what_if")
_ACTION_VERBS = {"scale": "patch", "stop": "patch", "resume": "create", "delete": "delete"}

_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class Permission:
    """The permission that a request needs, in the words of Kubernetes' authorization. Without a namespace: in all of
    them.
    """

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    def attributes(self) -> dict[str, str]:
        return {key: value for key, value in vars(self).items() if value}


def permissions_of(path: str, query: str, *, namespace: str) -> tuple[Permission, ...]:
    """Returns all that a request needs; nothing for a path that is not known. `namespace`: that of the dashboard."""
    if path in _LISTS:
        return (Permission(verb="list", resource="configmaps", namespace=namespace),)
    if path in _CLUSTER_PATHS:
        return (
            Permission(verb="list", resource="nodes"),
            Permission(verb="list", resource="pods"),
            *_of_training_jobs("list", ""),
        )
    found = _JOB_PATH.fullmatch(path)
    if found is None:
        return ()
    name, part, action = found[1], found[2] or "", found[3]
    # Read as the application does.
    where = QueryParams(query).get("namespace", "") or namespace
    if action is not None:
        verb = _ACTION_VERBS.get(action)
        if verb is None:
            return ()
        # A job may be one of a TrainingJob, which is then what changes.
        return (
            Permission(verb=verb, resource="configmaps", namespace=where),
            *_of_training_jobs(verb, where),
        )
    if part.startswith("logs"):
        return (Permission(verb="get", resource="pods", subresource="log", namespace=where),)
    return (Permission(verb="get", resource="configmaps", namespace=where, name=record_name(name)),)


def _of_training_jobs(verb: str, namespace: str) -> tuple[Permission, ...]:
    return tuple(
        Permission(verb=verb, group=each.group, resource=each.plural, namespace=namespace)
        for each in (TRAINING_JOB, PADDLE_TRAINING_JOB)
    )


class ClusterAccess:
    """`namespace`: that of the jobs which the dashboard lists. `cluster`: by the dashboard's own account."""

    def __init__(
        self,
        *,
        namespace: str,
        cookie_name: str,
        cluster: Callable[[], Cluster] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._namespace = namespace
        self._cookie_name = cookie_name
        self._connect = cluster or partial(Cluster.connect, patience=_PATIENCE_SECONDS)
        self._users = _Remembered[Document | None](_REVIEW_SECONDS, clock)
        self._permissions = _Remembered[bool](_REVIEW_SECONDS, clock)
        self._sessions = _Remembered[str](_SESSION_SECONDS, clock)

    async def refusal(self, path: str, query: str, headers: Mapping[str, str]) -> Refusal | None:
        """Returns why a request for data is refused, None if it is not."""
        token = self._token(path, headers)
        if token is None:
            return Refusal(HTTPStatus.UNAUTHORIZED, "Sign in with a token of the cluster.")
        try:
            user = await self._users.get(_digest(token), partial(self._review_token, token))
            if user is None:
                return Refusal(HTTPStatus.UNAUTHORIZED, "The cluster does not accept this token.")
            if path == SESSION_PATH:
                return None
            needed = permissions_of(path, query, namespace=self._namespace)
            if not needed:
                return Refusal(HTTPStatus.NOT_FOUND, "There is no such page.")
            for permission in needed:
                key = _digest(json.dumps([user, permission.attributes()], sort_keys=True))
                if not await self._permissions.get(key, partial(self._review_access, user, permission)):
                    return Refusal(HTTPStatus.FORBIDDEN, _lacks(user, permission))
        except UserError as error:
            return Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, f"The cluster cannot be asked who you are: {error.message}"
            )
        return None

    def begin_session(self, headers: Mapping[str, str]) -> str:
        """Returns the name of a new session for the token of a request that was not refused."""
        session = secrets.token_urlsafe(32)
        self._sessions.put(session, _bearer(headers) or "")
        return session

    def _token(self, path: str, headers: Mapping[str, str]) -> str | None:
        if token := _bearer(headers):
            return token
        if path == SESSION_PATH:
            return None
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self._cookie_name)
        except CookieError:
            return None
        return None if cookie is None else self._sessions.find(cookie.value)

    async def _review_token(self, token: str) -> Document | None:
        """Returns the user of the token as the cluster knows them; None if it does not."""
        answer = await self._create(_TOKEN_REVIEW, {"token": token})
        status = answer.get("status") or {}
        user = status.get("user") or {}
        if status.get("authenticated") is not True or not user.get("username"):
            return None
        return {key: user[key] for key in ("username", "uid", "groups", "extra") if user.get(key)}

    async def _review_access(self, user: Document, needed: Permission) -> bool:
        who = {"user" if key == "username" else key: value for key, value in user.items()}
        answer = await self._create(_ACCESS_REVIEW, {**who, "resourceAttributes": needed.attributes()})
        return (answer.get("status") or {}).get("allowed") is True

    async def _create(self, resource: Resource, spec: Mapping[str, Any]) -> Document:
        document = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {}, "spec": spec}
        async with self._connect() as cluster:
            return await cluster.create(document, resource=resource)


class _Remembered(Generic[_Value]):
    """Values by key for some time, a bounded number of them."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._values: OrderedDict[str, tuple[float, _Value]] = OrderedDict()

    def find(self, key: str) -> _Value | None:
        found = self._values.get(key)
        if found is None or found[0] < self._clock():
            return None
        return found[1]

    def put(self, key: str, value: _Value) -> None:
        self._values.pop(key, None)
        self._values[key] = (self._clock() + self._seconds, value)
        while len(self._values) > _MOST_KEPT:
            self._values.popitem(last=False)

    async def get(self, key: str, read: Callable[[], Awaitable[_Value]]) -> _Value:
        found = self._values.get(key)
        if found is not None and found[0] >= self._clock():
            return found[1]
        value = await read()
        self.put(key, value)
        return value


def _lacks(user: Document, permission: Permission) -> str:
    what = permission.resource + (f"/{permission.subresource}" if permission.subresource else "")
    where = f"in namespace {permission.namespace}" if permission.namespace else "in all namespaces"
    return f"{user.get('username')} may not {permission.verb} {what} {where}."


def _bearer(headers: Mapping[str, str]) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    token = token.strip()
    return token if kind.lower() == "bearer" and 0 < len(token) <= _LONGEST_TOKEN else None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
