"""Checks of the machines that jobs with `--hosts` run on."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from elasticdl.doctor.finding import Finding, Level
from elasticdl.errors import UserError
from elasticdl.extras import install_command
from elasticdl.platforms.ssh.host_check import probe_hosts
from elasticdl.platforms.ssh.launch import Document, SshOptions
from elasticdl.version import VERSION


def check_hosts(hosts: Sequence[str], *, python: str = "", config: str = "") -> list[Finding]:
    """Returns a finding for each host, and one if this machine cannot make certificates."""
    found = []
    if importlib.util.find_spec("cryptography") is None:
        found.append(
            Finding(
                subject="certificates",
                level=Level.ERROR,
                text="The package cryptography is not installed.",
                fix=install_command("ssh"),
            )
        )
    options = SshOptions(python=python or sys.executable, config=config)
    try:
        reports = probe_hosts(hosts, options, Document(version=VERSION))
    except UserError as error:
        return [*found, Finding(subject="ssh", level=Level.ERROR, text=error.message, fix=error.hint)]
    for report in reports:
        subject = f"host {report.host}"
        if report.problem:
            found.append(Finding(subject=subject, level=Level.ERROR, text=report.problem, fix=report.hint))
        else:
            text = f"elasticdl {VERSION} at {options.python}, {report.cores} cores"
            found.append(Finding(subject=subject, level=Level.OK, text=text))
    return found
