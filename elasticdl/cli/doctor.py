"""`elasticdl doctor`: checks this machine and its cluster, and prints the command that fixes each problem."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from elasticdl.errors import ExitCode, UserError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from elasticdl.doctor.finding import Finding

_MARKS = {
    "ok": ("ok", "green"),
    "absent": ("-", "bright_black"),
    "warning": ("warning", "yellow"),
    "error": ("ERROR", "red"),
}
_MARK_WIDTH = 8


@click.command(context_settings={"token_normalize_func": lambda word: word.replace("-", "_")})
@click.option("--namespace", default="", metavar="NAME", help="Check this namespace of the cluster.")
@click.option("--hosts", default="", metavar="HOST,...", help="Check these machines, as for train --hosts.")
@click.option(
    "--hosts_python", default="", metavar="FILE", help="The Python of the hosts, if it is at another path."
)
@click.option("--ssh_config", default="", metavar="FILE", help="Configuration of ssh for the hosts.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document.")
def doctor(namespace: str, hosts: str, hosts_python: str, ssh_config: str, as_json: bool) -> int:
    """Check Python, frameworks, compiler, ports, memory, disk, permissions, the cluster and hosts.

    Changes nothing. Prints the command that fixes each problem, and exits with 1 if there is one that keeps jobs from
    running. Frameworks are imported to see whether they work, which takes some seconds.
    """
    from elasticdl.doctor.checkup import all_checks, run_checks
    from elasticdl.doctor.finding import Level

    found: list[Finding] = []
    with _progress() as begins:
        checks = all_checks(
            namespace=namespace,
            hosts=_hosts(hosts),
            hosts_python=hosts_python,
            ssh_config=ssh_config,
        )
        for finding in run_checks(checks, begins=begins):
            found.append(finding)
            if not as_json:
                _print(finding)
    errors = sum(one.level is Level.ERROR for one in found)
    if as_json:
        click.echo(json.dumps([{**asdict(one), "level": str(one.level)} for one in found], indent=1))
    elif errors:
        click.echo(f"\n{errors} of {len(found)} checks found what keeps jobs from running.")
    else:
        click.echo("\nJobs can run here.")
    return ExitCode.JOB_FAILED if errors else ExitCode.SUCCESS


def _hosts(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    from elasticdl.jobs.flags.pairs import BadValue
    from elasticdl.jobs.sections.hosts import HostsGrammar

    try:
        return HostsGrammar().parse(text)
    except BadValue as problem:
        raise UserError(f"--hosts: {problem}.") from None


def _print(finding: Finding) -> None:
    mark, colour = _MARKS[str(finding.level)]
    click.echo(f"{click.style(mark.ljust(_MARK_WIDTH), fg=colour)} {finding.subject}: {finding.text}")
    if finding.fix:
        click.echo(f"{' ' * _MARK_WIDTH} {click.style('fix:', fg='cyan')} {finding.fix}")


def _progress() -> AbstractContextManager[Callable[[str], Any]]:
    """Shows the present check on a terminal."""
    if not sys.stdout.isatty():
        return nullcontext(lambda subject: None)
    from contextlib import contextmanager

    from rich.console import Console

    @contextmanager
    def shown() -> Any:
        with Console().status("…") as status:
            yield lambda subject: status.update(f"checking: {subject}")

    return shown()
