"""`elasticdl ps`: the program of one parameter server, by hand.

Jobs start their servers themselves, with all of this in the environment. By hand it is for looking: under a debugger or
a profiler, on another machine, or just to see what it asks for.
"""

from __future__ import annotations

import os

import click

from elasticdl.errors import UserError
from elasticdl.ps.server.identity import ADVERTISE, BIND, MASTER, NODE, NUMBER, PORT, TOKEN_FILE

_OPTIONS = {
    "master_addr": (MASTER, "HOST:PORT", "Where the job's master is."),
    "node": (NODE, "NAME", "Which node of the job it is, such as ps-0."),
    "number": (NUMBER, "N", "Which of the servers it is, from 0 on."),
    "token_file": (TOKEN_FILE, "FILE", "What opens it, and the master: the job's token."),
    "bind": (BIND, "ADDRESS", "Where it listens; this machine alone (127.0.0.1) if not given."),
    "port": (PORT, "N", "The port there; any free one if not given."),
    "advertise": (ADVERTISE, "HOST:PORT", "Where others find it, if that is elsewhere."),
}


def _with_options(command: click.Command) -> click.Command:
    for name, (variable, metavar, meaning) in _OPTIONS.items():
        command.params.append(
            click.Option(
                [f"--{name}"], envvar=variable, show_envvar=True, metavar=metavar, help=meaning, default=None
            )
        )
    return command


@click.command(context_settings={"token_normalize_func": lambda word: word.replace("-", "_")})
def ps(**given: str | None) -> int:
    """Run one parameter server of a job, as the job itself does.

    It holds a part of the model: dense parameters, and the rows of embedding tables in memory of its own. Workers pull
    values from it and push gradients, which it applies with the model's optimizer; what it has is kept on another
    server too, and written to checkpoints when the master asks for one.

    It joins the master and learns everything else from it. It is the same program as `python -m elasticdl.ps`, and ends
    when the master does not want it any more, or with SIGTERM.

    \b
    elasticdl train --num_ps=2 ...    a job with two servers
    elasticdl jobs status JOB         rows, memory, pulls and pushes, latencies, hot ids of each
    elasticdl jobs logs JOB ps-0      what one of them says
    elasticdl jobs pid JOB ps-0       its process, for a debugger or a profiler
    """
    from elasticdl.ps.__main__ import main

    environment = {**os.environ, **{_OPTIONS[name][0]: said for name, said in given.items() if said}}
    try:
        return main(environment)
    except ValueError as error:
        # Half a certificate, say.
        raise UserError(str(error)) from error


ps = _with_options(ps)
