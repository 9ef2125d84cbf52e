"""The connection to a host: the ssh command, and the document that the agent receives (`agent`).

The system's OpenSSH client is used, with the user's own configuration: names, users, ports, keys and jump hosts of
`~/.ssh/config` apply. Nothing is ever asked at a terminal, and sessions do not share connections: the end of one
would end the others.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from elasticdl.platforms.ssh import agent

# An interval three times without an answer ends a connection.
_ALIVE_SECONDS = 5
_CONNECT_SECONDS = 10


@dataclass(frozen=True, kw_only=True)
class SshOptions:
    """The options for all hosts of a job."""

    python: str
    # The configuration of the client; "": the user's own.
    config: str = ""


@dataclass(frozen=True, kw_only=True)
class Document:
    """The document that the agent receives. An empty command: only check the host's requirements."""

    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    # Contents by the variable that is to name the file.
    files: Mapping[str, str] = field(default_factory=dict)
    # The working directory; "": the login's.
    directory: str = ""
    # Paths that must exist, by the flag that names them.
    needed: Mapping[str, str] = field(default_factory=dict)
    # That elasticdl must have there; "": none is needed.
    version: str = ""
    # The folder that PATH begins with.
    programs: str = ""
    # 0: there is no master.
    master_port: int = 0
    # "": the address that the host sees this machine at.
    master_host: str = ""
    # How many addresses to find, where the document is a check.
    ports: int = 0
    # How many nodes share the cores of the host; 0: they are not divided.
    sharing: int = 0

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def ssh_command(host: str, options: SshOptions) -> list[str]:
    """Runs the agent on a host. Its words reach the Python there through any login shell."""
    return [
        "ssh",
        *(["-F", options.config] if options.config else []),
        "-T",
        *("-o", "BatchMode=yes"),
        *("-o", f"ConnectTimeout={_CONNECT_SECONDS}"),
        *("-o", f"ServerAliveInterval={_ALIVE_SECONDS}"),
        *("-o", "ServerAliveCountMax=3"),
        *("-o", "ControlMaster=no"),
        *("-o", "ControlPath=none"),
        *("-o", "ClearAllForwardings=yes"),
        "--",
        host,
        shlex.join(["exec", options.python, "-I", "-S", "-c", Path(agent.__file__).read_text()]),
    ]


def ssh_problem(host: str, *, exit_code: int, said: str, python: str) -> tuple[str, str]:
    """Returns what kept the agent from starting, and a hint: from the exit code of ssh, and what it printed."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1] if lines else f"ssh ended with exit code {exit_code}"
    if exit_code == 255:
        lowered = said.lower()
        if "permission denied" in lowered:
            hint = (
                f"ssh must log in without a password: `ssh-copy-id {host}`, or add the key to an ssh-agent."
            )
        elif "host key verification failed" in lowered:
            hint = f"`ssh {host}` once and confirm its key, or put the key into ~/.ssh/known_hosts."
        else:
            hint = f"`ssh {host} true` must work from this machine."
        return f"host {host} cannot be reached: {last}", hint
    if exit_code in (126, 127):
        return (
            f"host {host} has no Python at {python}: {last}",
            "Install it there at this path, or name another one: --hosts_python.",
        )
    return f"host {host}: the Python at {python} cannot run the agent: {last}", ""
