"""What a command says beside its answer: on standard error, so that whoever reads the answer is not disturbed."""

from __future__ import annotations

import click


def note(text: str) -> None:
    click.echo(f"{click.style('note:', fg='yellow')} {text}", err=True)
