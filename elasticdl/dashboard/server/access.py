"""Decides which requests are answered, before anything of them is read.

    Host              a name of this server, else 421: a page of an attacker whose name resolves to 127.0.0.1 is not
                      answered (DNS rebinding)
    Origin            this server's own, or none, else 403: other pages in the same browser cannot call it
    Sec-Fetch-Site    same-origin or none for data, else 403: for browsers that omit Origin
    method            GET and HEAD; POST for a session and for enabled actions, with a header that forms cannot send
    token             data needs the session's cookie, or `Authorization: Bearer TOKEN`, else 401

The token is in the fragment of the link, which browsers do not send. The page exchanges it for a cookie that scripts
cannot read (HttpOnly) and that is sent from no other site (SameSite=Strict). The cookie is derived from the token, so
it stays valid when the server is restarted with the same token.

Every response has a content security policy: no inline script or style, nothing from elsewhere, no frames.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from typing import NamedTuple, Protocol

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elasticdl.dashboard.settings import is_ip_address

# Requests with a header of their own need a preflight from other sites, which is not answered.
REQUEST_HEADER = "X-ElasticDL-Dashboard"
SESSION_PATH = "/api/session"
_ACTION_PATH = re.compile(r"/api/jobs/[^/]+/actions/[a-z]+")
_READING = ("GET", "HEAD")
_COOKIE_SECONDS = 30 * 24 * 3600

_SECURITY_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Refusal(NamedTuple):
    status: HTTPStatus
    message: str


class Authorizer(Protocol):
    """Decides about data in place of the server's own token (`cluster_access`)."""

    async def refusal(self, path: str, query: str, headers: Mapping[str, str]) -> Refusal | None: ...

    def begin_session(self, headers: Mapping[str, str]) -> list[str]:
        """Returns the parts of the session's cookie."""

    def row_filter(self, headers: Mapping[str, str]) -> RowFilter | None:
        """Says which jobs of a list this user may see; None: all of them."""

    def user_token(self, headers: Mapping[str, str]) -> str:
        """Returns the token as whose user the dashboard acts on the cluster."""


class RowFilter(Protocol):
    async def sees(self, namespace: str, training_job_group: str) -> bool:
        """Whether a job of this namespace is shown. `training_job_group`: of a TrainingJob; empty for other jobs."""


class Access:
    """The rules for one server. `hosts`: allowed names, without ports. `any_address`: addresses are allowed, too.
    `authorizer`: decides who may read what; without one, the token of this server does.
    """

    def __init__(
        self,
        *,
        token: str,
        scheme: str,
        port: int,
        hosts: frozenset[str],
        any_address: bool,
        allows_actions: bool,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._token = token
        self._scheme = scheme
        self._hosts = hosts
        self._any_address = any_address
        self.allows_actions = allows_actions
        self.authorizer = authorizer
        self._cookie_name = cookie_name(port)
        self._cookie = hmac.new(token.encode(), b"dashboard session", hashlib.sha256).hexdigest()

    def refusal(self, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
        """Returns why a request is refused, None if it is not."""
        host = headers.get("host", "")
        if not self._is_host_allowed(host):
            return Refusal(
                HTTPStatus.MISDIRECTED_REQUEST,
                "The dashboard is not served under this name. Add it with --host_name.",
            )
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"{self._scheme}://{host.lower()}":
            return Refusal(HTTPStatus.FORBIDDEN, "Requests of other sites are refused.")
        is_data = path.startswith("/api/")
        if is_data and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return Refusal(HTTPStatus.FORBIDDEN, "Requests of other sites are refused.")
        if method not in _READING and (refused := self._refused_change(method, path, headers)):
            return refused
        if is_data and self.authorizer is None and not self._is_authorized(path, headers):
            return Refusal(
                HTTPStatus.UNAUTHORIZED,
                "The token is missing or wrong. `elasticdl dashboard --show_link` prints the link with the token.",
            )
        return None

    def session_cookies(self, headers: Mapping[str, str]) -> list[str]:
        """Returns the values of the Set-Cookie headers for a caller that has shown the token."""
        secure = "; Secure" if self._scheme == "https" else ""
        parts = [self._cookie] if self.authorizer is None else self.authorizer.begin_session(headers)
        return [
            f"{cookie_part(self._cookie_name, number)}={part}; Path=/; Max-Age={_COOKIE_SECONDS}; HttpOnly; "
            f"SameSite=Strict{secure}"
            for number, part in enumerate(parts)
        ]

    def _is_host_allowed(self, header: str) -> bool:
        # Any port: a tunnel may have another one at its other end.
        name = _host_name(header.lower())
        return name in self._hosts or (self._any_address and is_ip_address(name))

    def _refused_change(self, method: str, path: str, headers: Mapping[str, str]) -> Refusal | None:
        if method != "POST":
            return Refusal(HTTPStatus.METHOD_NOT_ALLOWED, f"{method} is not allowed.")
        is_action = _ACTION_PATH.fullmatch(path) is not None
        if path != SESSION_PATH and not is_action:
            return Refusal(HTTPStatus.METHOD_NOT_ALLOWED, "POST is not allowed here.")
        if is_action and not self.allows_actions:
            return Refusal(
                HTTPStatus.FORBIDDEN, "Actions are disabled. Start the dashboard with --allow_actions."
            )
        if headers.get(REQUEST_HEADER.lower()) != "1":
            return Refusal(HTTPStatus.FORBIDDEN, f"The header {REQUEST_HEADER}: 1 is missing.")
        return None

    def _is_authorized(self, path: str, headers: Mapping[str, str]) -> bool:
        kind, _, shown = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(shown.strip().encode(), self._token.encode()):
            return True
        if path == SESSION_PATH:
            # A session begins with the token.
            return False
        try:
            cookies = SimpleCookie(headers.get("cookie", ""))
        except CookieError:
            return False
        found = cookies.get(self._cookie_name)
        return found is not None and hmac.compare_digest(found.value.encode(), self._cookie.encode())


class Guard:
    """The outermost layer of the application: refuses by the rules, and adds the headers to every response."""

    def __init__(self, app: ASGIApp, *, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS.items():
                    headers[name] = value
                if scope["path"].startswith("/api/"):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        refused = self._refusal(scope)
        authorizer = self._access.authorizer
        if refused is None and authorizer is not None and scope["path"].startswith("/api/"):
            query = scope["query_string"].decode("latin-1")
            refused = await authorizer.refusal(scope["path"], query, Headers(scope=scope))
        if refused is None:
            await self._app(scope, receive, send_with_headers)
            return
        answer = JSONResponse({"error": refused.message}, status_code=refused.status)
        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Refusal | None:
        headers = Headers(scope=scope)
        # If a header comes twice, a proxy may have read the other one.
        if any(len(headers.getlist(name)) > 1 for name in ("host", "origin", "authorization")):
            return Refusal(HTTPStatus.BAD_REQUEST, "A header is there twice.")
        return self._access.refusal(scope["method"], scope["path"], headers)


def cookie_name(port: int) -> str:
    """Returns the name of a server's cookie, with its port: cookies of a host are sent to all of its ports."""
    return f"elasticdl-{port}"


def cookie_part(name: str, number: int) -> str:
    """Returns the name of a part of a cookie that is too long for one."""
    return name if number == 0 else f"{name}.{number}"


def _host_name(header: str) -> str:
    """Returns the name without the port, an address of IPv6 without its brackets. Empty for what is no host."""
    found = re.fullmatch(r"(\[[0-9a-f:.]+\]|[^:\[\]/@,\s]+)(?::[0-9]{1,5})?", header)
    return found[1].strip("[]") if found is not None else ""
