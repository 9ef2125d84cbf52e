"""The output of `elasticdl data`: progress while it works, and tables; plain lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from elasticdl.data.description import Description

# Plain lines: so long between two of them. Work that takes less time says nothing.
_LINE_SECONDS = 5.0
# Records come by the hundred thousand a second; showing each would cost more than they do.
_SHOW_EVERY = 1000
_FILES_SHOWN = 20
_COLUMNS_SHOWN = 12


class Progress:
    """Shows the progress in so many records, on the standard error stream."""

    def __init__(self, doing: str, total: int, *, what: str = "samples") -> None:
        self._doing = doing
        self._total = total
        self._what = what
        self._done = 0
        self._shown = 0
        self._last = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        if self._total and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._doing, total=self._total)
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, records: int) -> None:
        self._done += records
        if self._done - self._shown >= _SHOW_EVERY or self._done >= self._total:
            self._show()

    def step(self, doing: str, records: int) -> None:
        """Work in several steps, each over all records."""
        if doing != self._doing:
            self._doing = doing
            self._done = self._shown = 0
            if self._bar is not None:
                self._bar.reset(self._task, description=doing)
        self.advance(records)

    def _show(self) -> None:
        self._shown = self._done
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done)
        elif time.monotonic() - self._last >= _LINE_SECONDS:
            self._last = time.monotonic()
            share = f" ({100 * self._done // self._total} %)" if self._total else ""
            click.echo(f"{self._doing}: {self._done} of {self._total} {self._what}{share}", err=True)


def human_bytes(size: int) -> str:
    amount = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{size} bytes" if unit == "bytes" else f"{amount:.1f} {unit}"


def show_description(description: Description) -> None:
    click.echo(f"{description.origin}: {description.format}, {_files(description)}, ", nl=False)
    click.echo(f"{description.samples} samples, {human_bytes(description.bytes)}")
    if description.class_names:
        names = description.class_names
        more = ", …" if len(names) > 10 else ""
        click.echo(f"{len(names)} classes: {', '.join(names[:10])}{more}")
    if len(description.files) > 1:
        files = description.files[:_FILES_SHOWN]
        rows = [(file.path, str(file.samples), human_bytes(file.bytes)) for file in files]
        show_table(["FILE", "SAMPLES", "SIZE"], rows)
        if len(description.files) > _FILES_SHOWN:
            click.echo(f"and {len(description.files) - _FILES_SHOWN} files more")
    if description.columns:
        show_table(
            ["COLUMN", "TYPE", "VALUES"],
            [(column.name, column.dtype, column.values) for column in description.columns],
        )
    for number, record in enumerate(description.first_records):
        shown = [f"{name}={value}" for name, value in list(record.items())[:_COLUMNS_SHOWN]]
        if len(record) > _COLUMNS_SHOWN:
            shown.append(f"… {len(record)} columns")
        click.echo(f"record {number}: {', '.join(shown)}")
    if description.checked:
        bad = sum(found.end - found.start for found in description.bad)
        click.echo(f"checked: {description.samples - bad} samples are right, {bad} are corrupt")
        for found in description.bad:
            click.echo(f"corrupt: {found}")


def _files(description: Description) -> str:
    return "1 file" if len(description.files) == 1 else f"{len(description.files)} files"


def show_table(header: list[str], rows: Sequence[tuple[str, ...]]) -> None:
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(*header)
        for row in rows:
            table.add_row(*map(Text, row))
        Console().print(table)
        return
    widths = [max(len(row[column]) for row in [tuple(header), *rows]) for column in range(len(header))]
    for row in [tuple(header), *rows]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
