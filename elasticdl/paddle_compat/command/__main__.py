"""`python -m elasticdl.paddle_compat.command train|pserver|version …`: what the image's `paddle` runs."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from elasticdl.errors import ExitCode, UserError
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.paddle_compat.cluster.arguments import PSERVER, TRAIN, explain, parse
from elasticdl.paddle_compat.cluster.node import let_forks_die
from elasticdl.paddle_compat.installation import check_installed, paddle_version

_COMMANDS = ("train", "pserver", "version")
_FLAGS = {"train": TRAIN, "pserver": PSERVER}


def main(words: Sequence[str] | None = None) -> int:
    given = list(sys.argv[1:] if words is None else words)
    logging.basicConfig(level=logging.INFO, format="[%(levelname)s %(asctime)s %(name)s] %(message)s")
    try:
        return _run(given)
    except UserError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return ExitCode.BAD_INPUT


def _run(given: list[str]) -> int:
    command, rest = (given[0], given[1:]) if given else ("", [])
    if command == "version":
        print(version())
        return 0
    if command in _FLAGS and ("--help" in rest or "-h" in rest):
        print(explain(_FLAGS[command], command=f"paddle {command}"))
        return 0
    if command == "train":
        check_installed()
        from elasticdl.paddle_compat.command.train import train

        return train(parse(rest, TRAIN, command="paddle train"))
    if command == "pserver":
        check_installed()
        from elasticdl.paddle_compat.command.pserver import serve

        return serve(parse(rest, PSERVER, command="paddle pserver"))
    raise UserError(
        f"There is no command `paddle {command}`.{did_you_mean(command, _COMMANDS)}",
        hint=f"Commands are {', '.join(_COMMANDS)}.",
    )


def version() -> str:
    from importlib.metadata import version as version_of

    return f"PaddlePaddle {paddle_version()}, commands of the Kubernetes guide by elasticdl {version_of('elasticdl')}"


if __name__ == "__main__":
    let_forks_die()
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Paddle's threads may outlive what they use while the interpreter shuts down.
    os._exit(code)
