"""docs/reference/dashboard-endpoints.md: the routes of the dashboard, from the docstring of its application.

A test compares the docstring with the routes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from elasticdl.dashboard.server import application
from tools.reference.markdown import code, opening, table

_LINE = re.compile(r"^ {4}(GET|POST) +(/\S+) {2,}(.+)$", re.MULTILINE)
_TEXT = """\
The [dashboard](../dashboard.md) and every program read the same addresses. Data needs the session's cookie or the
header `Authorization: Bearer TOKEN`; `elasticdl dashboard --show_link` prints the token in its link.
`?namespace=NAME` names a job of the cluster. A dashboard of the cluster (`--cluster_auth`, or in the controller) takes
the user's own token of the cluster instead, and needs `?namespace=NAME` if it shows all namespaces.

Errors have the form `{"error": "...", "hint": "..."}`."""

_STATUS = (
    ("200", "the document"),
    ("400", "the request cannot be understood"),
    ("401", "the token is missing or wrong"),
    (
        "403",
        "another site, actions are disabled, a header is missing, or the cluster does not grant it to this user",
    ),
    ("404", "there is no such job, node or cluster"),
    ("405", "the method is not allowed"),
    ("409", "an action was refused, with the reason"),
    ("421", "the Host header is not a name of this server: `--host_name` adds one"),
    ("503", "the cluster cannot be asked who the user is"),
)
_STREAMS = """\
A stream of server-sent events begins with an event `whole`, a document by section. Events `change` follow, with the
sections that are new; `null` means that a section is gone. A client that sends `Last-Event-ID` continues where it was.
Streams of logs have plain events with lists of lines, and end with the event `end`."""


def endpoints() -> Iterator[tuple[str, str, str]]:
    """Yields method, path and meaning."""
    yield from _LINE.findall(application.__doc__ or "")


def page() -> str:
    lines = opening("Dashboard endpoints", "elasticdl/dashboard/server/application.py", _TEXT)
    lines += table(
        ["method", "path", "gives"],
        ([method, code(path), text[:1].upper() + text[1:]] for method, path, text in endpoints()),
    )
    lines += ["## Streams", "", _STREAMS, "", "## Status codes", ""]
    return "\n".join([*lines, *table(["code", "meaning"], _STATUS)])
