"""The identity of a parameter server, from the environment that its master has set. The rest is in directives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elasticdl.errors import UserError

NODE = "ELASTICDL_NODE"
NUMBER = "WORKER_ID"
MASTER = "MASTER_ADDR"
TOKEN_FILE = "ELASTICDL_TOKEN_FILE"
# Where it listens, and the host that others connect to, if it is not this machine alone.
BIND = "ELASTICDL_BIND"
PORT = "ELASTICDL_PORT"
ADVERTISE = "ELASTICDL_ADVERTISE"
_NEEDED = (MASTER, NODE, NUMBER, TOKEN_FILE)


@dataclass(frozen=True, kw_only=True)
class Identity:
    node: str
    # The number of the server, from 0 on.
    number: int
    master_address: str
    token: str

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Identity:
        """Raises `UserError` if something is missing or cannot be right."""
        missing = [name for name in _NEEDED if not environment.get(name)]
        if missing:
            raise UserError(
                f"A parameter server is one of a job, and nothing says of which: {_listed(missing)} not set.",
                hint="Jobs start their servers themselves: `elasticdl train --num_ps=2`. "
                "`elasticdl ps --help` says what each of these means.",
            )
        number = environment[NUMBER]
        if not number.isdecimal():
            raise UserError(f"{NUMBER} is {number!r}: servers are numbered from 0 on.")
        return cls(
            node=environment[NODE],
            number=int(number),
            master_address=environment[MASTER],
            token=_read_token(environment[TOKEN_FILE]),
        )


def port_of(environment: Mapping[str, str], name: str) -> int:
    """0, which is any free one, if there is none."""
    given = environment.get(name) or "0"
    if not given.isdecimal() or int(given) > 65535:
        raise UserError(f"{name} is {given!r}, and no port.")
    return int(given)


def _read_token(path: str) -> str:
    # Here, so that --help does without gRPC.
    from elasticdl.wire.channel import read_token

    try:
        return read_token(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"The job's token cannot be read from {path}: {reason}.") from error
    except ValueError as error:
        raise UserError(f"There is no token in {path}: it is empty.") from error


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]} are" if len(names) > 1 else f"{names[0]} is"
