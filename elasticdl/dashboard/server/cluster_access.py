"""Access by the rights of the cluster: a user's own token decides who it is (TokenReview) and what they may do
(SubjectAccessReview).

    all jobs, their metrics          list configmaps, in the namespace of the dashboard
    one job                          get configmaps, in the namespace that is named; or, of a job that is one of a
                                     TrainingJob, get trainingjobs there
    logs                             get pods/log, there
    scale, stop                      patch configmaps and trainingjobs, there
    resume, delete                   create, delete configmaps and trainingjobs, there
    the cluster                      list nodes, pods and trainingjobs, of all namespaces

A dashboard of all namespaces lists to each user the jobs of namespaces in which the user may list configmaps, and of
TrainingJobs where the user may list these. The metrics of all jobs need the right to list configmaps in all namespaces.

A page exchanges the token for a cookie that only servers with the same secret can read (`sealed_sessions.py`). Reviews
are remembered for some seconds; streams end after some minutes and are opened again, so that a right that was taken
away is gone by then. What changes a job is done with the user's own token, so that the dashboard's account needs no
right to change anything.

Failure modes
    The API server does not answer, or the dashboard's own account may not ask: 503, and nothing is shown.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import Any, Generic, TypeVar

from starlette.datastructures import QueryParams

from elasticdl.catalog.kubernetes.training_job import find_training_job
from elasticdl.dashboard.server.access import SESSION_PATH, Refusal, cookie_part
from elasticdl.dashboard.server.sealed_sessions import MOST_PARTS, SealedSessions
from elasticdl.errors import UserError
from elasticdl.platforms.kubernetes.api_resources import PADDLE_TRAINING_JOB, TRAINING_JOB, Resource
from elasticdl.platforms.kubernetes.client import Cluster, ClusterError, Document
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
# Reviews of each kind that are remembered.
_MOST_KEPT = 2048
# Tokens of service accounts have about a thousand bytes, those of identity providers some thousands.
_LONGEST_TOKEN = 16 * 1024
_JOB_PATH = re.compile(r"/api/jobs/([^/]+)(?:/(stream|logs|logs/stream|actions/([a-z]+)))?")
_ROWS = ("/api/jobs", "/api/stream")
_LISTS = (*_ROWS, "/api/metrics")
_CLUSTER_PATHS = ("/api/cluster", "/api/cluster/stream", "/api/cluster/what_if")
_ACTION_VERBS = {"scale": "patch", "stop": "patch", "resume": "create", "delete": "delete"}

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_JOB_NAME = re.compile(r"[a-z0-9][-.a-z0-9]*")
_FORBIDDEN = 403

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
    where = _named_namespace(query) or namespace
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


def _named_namespace(query: str) -> str:
    """Read as the application does."""
    return QueryParams(query).get("namespace", "")


def _of_training_jobs(verb: str, namespace: str) -> tuple[Permission, ...]:
    return tuple(
        Permission(verb=verb, group=each.group, resource=each.plural, namespace=namespace)
        for each in (TRAINING_JOB, PADDLE_TRAINING_JOB)
    )


class ClusterAccess:
    """`namespace`: that of the jobs which the dashboard lists; empty: all. `cluster`: by its own account."""

    def __init__(
        self,
        *,
        namespace: str,
        cookie_name: str,
        sessions: SealedSessions,
        cluster: Callable[[], Cluster] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._namespace = namespace
        self._cookie_name = cookie_name
        self._connect = cluster or partial(Cluster.connect, patience=_PATIENCE_SECONDS)
        self._users = _Remembered[Document | None](_REVIEW_SECONDS, clock)
        self._permissions = _Remembered[bool](_REVIEW_SECONDS, clock)
        self._sessions = sessions

    async def refusal(self, path: str, query: str, headers: Mapping[str, str]) -> Refusal | None:
        """Returns why a request for data is refused, None if it is not."""
        token = self._token(path, headers)
        if token is None:
            return Refusal(HTTPStatus.UNAUTHORIZED, "Sign in with a token of the cluster.")
        try:
            user = await self._users.get(_digest(token), partial(self._review_token, token))
            if user is None:
                return Refusal(HTTPStatus.UNAUTHORIZED, "The cluster does not accept this token.")
            # Each row of such a list is a question of its own.
            if path == SESSION_PATH or (path in _ROWS and not self._namespace):
                return None
            return await self._refused_user(user, path, query)
        except UserError as error:
            return Refusal(
                HTTPStatus.SERVICE_UNAVAILABLE, f"The cluster cannot be asked who you are: {error.message}"
            )

    async def _refused_user(self, user: Document, path: str, query: str) -> Refusal | None:
        needed = permissions_of(path, query, namespace=self._namespace)
        if not needed:
            return Refusal(HTTPStatus.NOT_FOUND, "There is no such page.")
        job = _JOB_PATH.fullmatch(path)
        where = _named_namespace(query) or self._namespace
        if job is not None and not (_JOB_NAME.fullmatch(job[1]) and _NAMESPACE.fullmatch(where)):
            return Refusal(HTTPStatus.BAD_REQUEST, "Name a job, and its namespace: ?namespace=NAME.")
        for permission in needed:
            if await self._may(user, permission):
                continue
            is_page = job is not None and job[2] in (None, "stream")
            if job is None or not is_page or not await self._may_get_training_job(user, where, job[1]):
                return Refusal(HTTPStatus.FORBIDDEN, _lacks(user, permission))
        return None

    async def _may(self, user: Document, permission: Permission) -> bool:
        key = _digest(json.dumps([user, permission.attributes()], sort_keys=True))
        return await self._permissions.get(key, partial(self._review_access, user, permission))

    async def _may_get_training_job(self, user: Document, namespace: str, name: str) -> bool:
        """Whether the job is one of a TrainingJob that the user may get."""
        async with self._connect() as cluster:
            there = cluster.in_namespace(namespace)
            try:
                record = await there.get("ConfigMap", record_name(name))
                found = await find_training_job(there, name, record=record)
            except ClusterError as error:
                if error.status != _FORBIDDEN:
                    raise
                # The dashboard's account has no right to TrainingJobs: it shows none.
                return False
        if found is None:
            return False
        group, resource = found[0].group, found[0].plural
        needed = Permission(verb="get", group=group, resource=resource, namespace=namespace, name=name)
        return await self._may(user, needed)

    def row_filter(self, headers: Mapping[str, str]) -> UserRows | None:
        """Says which jobs of all namespaces the user of a request may see; None for a dashboard of one namespace."""
        return None if self._namespace else UserRows(self, self.user_token(headers))

    async def may_list(self, token: str, permission: Permission) -> bool:
        """Whether the user of a token has the permission. Raises `UserError`."""
        user = await self._users.get(_digest(token), partial(self._review_token, token))
        return user is not None and await self._may(user, permission)

    def user_token(self, headers: Mapping[str, str]) -> str:
        """Returns the token of a request that was not refused."""
        return self._token("", headers) or ""

    def begin_session(self, headers: Mapping[str, str]) -> list[str]:
        """Returns the cookie of a new session, in parts, for the token of a request that was not refused."""
        return self._sessions.seal(_bearer(headers) or "")

    def _token(self, path: str, headers: Mapping[str, str]) -> str | None:
        if token := _bearer(headers):
            return token
        if path == SESSION_PATH:
            return None
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return None
        names = (cookie_part(self._cookie_name, number) for number in range(MOST_PARTS))
        parts = itertools.takewhile(lambda part: part is not None, map(cookies.get, names))
        return self._sessions.open([part.value for part in parts if part is not None])

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


class UserRows:
    """Which jobs of all namespaces one user may see."""

    def __init__(self, access: ClusterAccess, token: str) -> None:
        self._access = access
        self._token = token

    async def sees(self, namespace: str, training_job_group: str) -> bool:
        records = Permission(verb="list", resource="configmaps", namespace=namespace)
        if await self._access.may_list(self._token, records):
            return True
        if not training_job_group:
            return False
        needed = Permission(
            verb="list", group=training_job_group, resource=TRAINING_JOB.plural, namespace=namespace
        )
        return await self._access.may_list(self._token, needed)


class _Remembered(Generic[_Value]):
    """Values by key for some time, a bounded number of them."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._values: OrderedDict[str, tuple[float, _Value]] = OrderedDict()

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
