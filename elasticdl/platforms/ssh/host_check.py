"""Checks hosts before a job starts: all at the same time, each problem with what to do about it."""

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
class HostReport:
    """A host that can run nodes, or what keeps it from that."""

    host: str
    cores: int = 0
    # As many as the document asks for.
    addresses: tuple[str, ...] = ()
    problem: str = ""
    hint: str = ""


def probe_hosts(hosts: Sequence[str], options: SshOptions, document: Document) -> list[HostReport]:
    """Logs in on all of them, and looks for what the document names. Raises `UserError` if there is no ssh here."""

    def probe(host: str) -> HostReport:
        session = Session(host=host, options=options, document=document.to_dict())
        session.run()
        if session.last is not None and session.last[0] == agent.END:
            found = session.last[1]
            return HostReport(host=host, cores=found["cores"], addresses=tuple(found["addresses"]))
        message, hint = session.problem
        return HostReport(host=host, problem=f"{message[0].upper()}{message[1:]}.", hint=hint)

    try:
        with ThreadPoolExecutor(min(_MOST_AT_ONCE, len(hosts))) as pool:
            return list(pool.map(probe, hosts))
    except FileNotFoundError:
        raise UserError(
            "--hosts needs the program ssh, which is not here.", hint="Install OpenSSH's client."
        ) from None


def check_hosts(hosts: Sequence[str], options: SshOptions, document: Document) -> list[HostReport]:
    """Raises `UserError` with every host that cannot run nodes."""
    reports = probe_hosts(hosts, options, document)
    problems = [report for report in reports if report.problem]
    if problems:
        hints = dict.fromkeys(report.hint for report in problems if report.hint)
        raise UserError("\n".join(report.problem for report in problems), hint="\n".join(hints))
    return reports
