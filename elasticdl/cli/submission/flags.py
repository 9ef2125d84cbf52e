"""The flags of a job as the options of a command: derived from their definitions, nothing is said twice.

A command keeps what was typed as text. What it means is for the grammars in `jobs` to say, which speak to the
readers of files and to the Python API as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from elasticdl.cli.group import heading
from elasticdl.errors import UserError
from elasticdl.jobs.flags.flag import JobKind, Topic
from elasticdl.jobs.flags.grammar import Boolean, Grammar
from elasticdl.jobs.flags.nearest import did_you_mean
from elasticdl.jobs.schema.flag_index import LEAVES, NAMES, Given, Leaf

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class FlagText(click.types.StringParamType):
    """Text, with what a shell may propose for it."""

    def __init__(self, grammar: Grammar[Any]) -> None:
        self._grammar = grammar

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[Any]]:
        from click.shell_completion import CompletionItem

        if self._grammar.completes:
            return [CompletionItem(incomplete, type=self._grammar.completes)]
        typed = incomplete.lower()
        return [CompletionItem(word) for word in self._grammar.choices if word.lower().startswith(typed)]


class FlagOption(click.Option):
    """A flag of a job."""

    def __init__(self, leaf: Leaf) -> None:
        grammar = leaf.flag.grammar
        settings: dict[str, Any] = {"multiple": grammar.repeatable}
        if isinstance(grammar, Boolean):
            # `--shuffle` alone says yes.
            settings |= {"is_flag": False, "flag_value": "true"}
        words = [f"--{word}" for word in (leaf.name, *leaf.flag.aliases)]
        super().__init__([*words, leaf.name], type=FlagText(grammar), help=leaf.flag.help, **settings)
        self.leaf = leaf

    def row(self) -> tuple[str, str]:
        """Returns the two columns of the flag in the help."""
        default = default_text(self.leaf)
        note = f"  [default: {default}]" if default else ""
        return f"{', '.join(self.opts)} {self.leaf.flag.grammar.shape}", f"{self.leaf.flag.help}{note}"


def default_text(leaf: Leaf) -> str:
    """Returns the text of the default in the help; empty if the default is no value."""
    return leaf.flag.derived or leaf.flag.grammar.text(leaf.default())


class JobCommand(click.Command):
    """A command that takes the flags of one kind of job."""

    def __init__(self, *, kind: JobKind, options: Sequence[click.Option], **settings: Any) -> None:
        flags = [FlagOption(leaf) for leaf in LEAVES.values() if kind in leaf.flag.kinds]
        super().__init__(name=kind, params=[*options, *flags], **settings)
        self.kind = kind

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            raise self._unknown(error.option_name, words) from None
        except click.UsageError as error:
            stray = next((word for word in words if word in error.message), "")
            name = stray.partition("=")[0].replace("-", "_")
            if name in NAMES and not stray.startswith("-"):
                raise UserError(f"Flags begin with two dashes: --{stray}") from None
            raise
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        flags = [param for param in self.get_params(ctx) if isinstance(param, FlagOption)]
        for topic in Topic:
            rows = [flag.row() for flag in flags if flag.leaf.flag.topic is topic]
            if rows:
                with formatter.section(heading(topic.value)):
                    formatter.write_dl(rows)
        others = [param for param in self.get_params(ctx) if not isinstance(param, FlagOption)]
        records = [record for param in others if (record := param.get_help_record(ctx))]
        with formatter.section(heading("This command")):
            formatter.write_dl(records)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        if incomplete.startswith("--"):
            incomplete = "--" + incomplete[2:].replace("-", "_")
        return super().shell_complete(ctx, incomplete)

    def _unknown(self, option: str, words: list[str]) -> UserError:
        if not option.startswith("--"):
            # click reads -num_workers as the letters -n -u -m …: say what was typed.
            option = next((word for word in words if word.startswith(option) and word[:2] != "--"), option)
        name = option.lstrip("-").partition("=")[0].replace("-", "_")
        hint = f"`elasticdl {self.kind} --help` lists the flags."
        if name in NAMES:
            leaf = LEAVES[NAMES[name]]
            if self.kind in leaf.flag.kinds:
                return UserError(f"Flags begin with two dashes: --{name}", hint=hint)
            others = " and ".join(leaf.flag.kinds)
            return UserError(f"--{name} is a flag of {others}, not of {self.kind}.", hint=hint)
        known = {word.lstrip("-") for param in self.params for word in param.opts}
        return UserError(
            f"There is no flag {option.partition('=')[0]}.{did_you_mean(name, known, prefix='--')}", hint=hint
        )


def given_flags(ctx: click.Context) -> dict[str, Given]:
    """Returns the given values by flag. Raises if a flag seems to have consumed the next one."""
    given = {}
    for param in ctx.command.params:
        raw = ctx.params.get(param.name or "")
        if not isinstance(param, FlagOption) or raw is None or raw == ():
            continue
        for text in raw if isinstance(raw, tuple) else (raw,):
            _check_not_a_flag(param.leaf.name, text)
        given[param.leaf.name] = Given(raw=raw, where=f"--{param.leaf.name}")
    return given


def merged(file: Mapping[str, Given], flags: Mapping[str, Given]) -> dict[str, Given]:
    """Flags go before the file, under whichever of its names the file has a flag."""
    typed = set(flags)
    return {**{word: value for word, value in file.items() if NAMES[word] not in typed}, **flags}


def _check_not_a_flag(name: str, text: str) -> None:
    word = text.removeprefix("--").partition("=")[0].replace("-", "_")
    if text.startswith("--") and word in NAMES:
        raise UserError(f"--{name} has no value: the next word is {text}.")
