"""Whether PaddlePaddle is installed, found out without importing it, which takes seconds."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of
from importlib.util import find_spec

from elasticdl.errors import UserError
from elasticdl.extras import install_command


def check_installed() -> None:
    """Raises `UserError` if there is no Paddle to train with."""
    found = find_spec("paddle")
    # Any folder of that name is a package, such as the one of the guide in a checkout. It has no module.
    if found is None or found.origin is None:
        raise _missing()


def paddle_version() -> str:
    """Raises `UserError` if it is not installed."""
    try:
        return version_of("paddlepaddle")
    except PackageNotFoundError as error:
        raise _missing() from error


def _missing() -> UserError:
    return UserError("PaddlePaddle is not installed.", hint=install_command("paddle"))
