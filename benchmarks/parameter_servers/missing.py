"""Peers that cannot be installed on this machine: reported and omitted."""

from __future__ import annotations

import importlib.metadata
import importlib.util


class Missing(Exception):
    """A peer that is not available, with the reason."""


def need(module: str, name: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise Missing(f"{name} is not installed")


def need_paddle() -> None:
    need("paddle", "Paddle (paddlepaddle 2.6.2)")
    version = importlib.metadata.version("paddlepaddle")
    if int(version.partition(".")[0]) > 2:
        raise Missing(f"paddlepaddle is {version}, and from 3.1 on it comes without parameter servers")
