"""Notes beside the output of a command: on standard error, so that they do not mix with what other programs read."""

from __future__ import annotations

import click

from elasticdl.catalog.observer import JobObserver


def note(text: str) -> None:
    click.echo(f"{click.style('note:', fg='yellow')} {text}", err=True)


class NoteObserver(JobObserver):
    """Prints the notes of a catalog, and nothing else."""

    def note(self, text: str) -> None:
        note(text)
