"""Checks the hosts of a job before it starts: all at the same time, each problem with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from elasticdl.errors import UserError
from elasticdl.platforms.ssh import agent
from elasticdl.platforms.ssh.launch import Document, SshOptions
from elasticdl.platforms.ssh.remote_node import Session

_MOST_AT_ONCE = 32


@dataclass(frozen=True, kw_only=True)
class _Problem:
    message: str
    hint: str


def check_hosts(hosts: Sequence[str], options: SshOptions, document: Document) -> int:
    """Returns the cores of all hosts together. Raises `UserError` with every host that cannot run nodes."""

    def check(host: str) -> int | _Problem:
        session = Session(host=host, options=options, document=document.to_dict())
        session.run()
        if session.last is not None and session.last[0] == agent.END:
            return int(session.last[1]["cores"])
        message, hint = session.problem
        return _Problem(message=f"{message[0].upper()}{message[1:]}.", hint=hint)

    try:
        with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(hosts))) as pool:
            found = list(pool.map(check, hosts))
    except FileNotFoundError:
        raise UserError(
            "--hosts needs the program ssh, which is not here.", hint="Install OpenSSH's client."
        ) from None
    problems = [entry for entry in found if isinstance(entry, _Problem)]
    if problems:
        hints = dict.fromkeys(problem.hint for problem in problems if problem.hint)
        raise UserError("\n".join(problem.message for problem in problems), hint="\n".join(hints))
    return sum(entry for entry in found if isinstance(entry, int))
