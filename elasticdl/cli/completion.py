"""`elasticdl completion`: makes the shell know the commands, flags and values."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    get_completion_class,
)

_VARIABLE = "_ELASTICDL_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, flags and values in your shell.

    \b
    bash:  echo 'eval "$(elasticdl completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(elasticdl completion zsh)"' >> ~/.zshrc
    fish:  elasticdl completion fish > ~/.config/fish/completions/elasticdl.fish
    """
    found = get_completion_class(shell)
    assert found is not None, shell
    script = found(ctx.find_root().command, {}, "elasticdl", _VARIABLE)
    # Not found.source(): that one starts bash to look at its version.
    click.echo(ShellComplete.source(script))


class _Bash(BashComplete):
    """Bash cuts `--flag=val` into three words; click expects two."""

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        words = [
            word for before, word in zip(["", *args], args, strict=False) if before[:2] != "--" or word != "="
        ]
        return words, incomplete


class _OneWord(ShellComplete):
    """The other shells keep `--flag=val` in one word, and want the whole of it back."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        flag, equals, value = incomplete.partition("=")
        if not equals or not flag.startswith("--"):
            return super().get_completions(args, incomplete)
        items = super().get_completions([*args, flag], value)
        for item in items:
            if item.type == "plain":
                item.value = f"{flag}={item.value}"
        return items


class _Zsh(_OneWord, ZshComplete):
    pass


class _Fish(_OneWord, FishComplete):
    pass


def teach_equals_signs() -> None:
    """Values are proposed behind `--flag=` as they are behind `--flag `."""
    for shell in (_Bash, _Zsh, _Fish):
        add_completion_class(shell)
