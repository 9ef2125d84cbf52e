"""A group of commands that imports only the one that is called.

What `elasticdl --help` shows of a command stands in the table, so that help and completion need none of them;
that keeps both fast however much the commands import. A command whose module is not there is not listed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import click

from elasticdl.errors import UserError
from elasticdl.jobs.flags.nearest import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The module of a command ("module:attribute"), and a short description."""

    place: str
    help: str

    @property
    def exists(self) -> bool:
        return find_spec(self.place.partition(":")[0]) is not None

    def load(self) -> click.Command:
        module, _, attribute = self.place.partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command), f"{self.place} is not a command"
        return command


class LazyGroup(click.Group):
    def __init__(self, *, entries: Mapping[str, Entry], **settings: Any) -> None:
        super().__init__(**settings)
        self._entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, entry in self._entries.items() if entry.exists]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return self._entries[cmd_name].load() if cmd_name in self.list_commands(ctx) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = self.list_commands(ctx)
        if not name.startswith("-") and name not in known and not ctx.resilient_parsing:
            raise UserError(
                f"There is no command {name!r}.{did_you_mean(name, known)}",
                hint=f"`{ctx.command_path} --help` lists the commands.",
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section(heading("Commands")):
            formatter.write_dl([(name, self._entries[name].help) for name in self.list_commands(ctx)])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=self._entries[name].help)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]


class UserPath(click.Path):
    """A path in which `~` is the home folder. A shell expands it in `--flag ~/x`, and not in `--flag=~/x`."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> Any:
        return super().convert(os.path.expanduser(value), param, ctx)


def heading(text: str) -> str:
    """A heading of a help page; coloured on a terminal, and plain where the output goes elsewhere."""
    return click.style(text, fg="cyan", bold=True)
