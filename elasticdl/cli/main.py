"""The `elasticdl` command: finds the command that is meant, and says in plain words what went wrong.

Exit codes are those of `elasticdl.errors.ExitCode`.
"""

from __future__ import annotations

import errno
import gc
import os
import re
import sys
from collections.abc import Sequence

import click

from elasticdl import __version__
from elasticdl.cli.group import Entry, LazyGroup
from elasticdl.errors import ExitCode, UserError
from elasticdl.jobs.flags.nearest import did_you_mean

# More objects than a command makes until it is under way. Nearly all of them are of modules, and stay: Python
# would go through them dozens of times to see whether some can go.
_OBJECTS_BETWEEN_COLLECTIONS = 100_000

COMMANDS = {
    "train": Entry(place="elasticdl.cli.submission.commands:train", help="Train a model."),
    "evaluate": Entry(place="elasticdl.cli.submission.commands:evaluate", help="Evaluate a trained model."),
    "predict": Entry(
        place="elasticdl.cli.submission.commands:predict", help="Make predictions with a trained model."
    ),
    "jobs": Entry(place="elasticdl.cli.jobs.commands:jobs", help="List, watch, scale, stop and delete jobs."),
    "dashboard": Entry(place="elasticdl.cli.dashboard:dashboard", help="Serve a web page with all jobs."),
    "data": Entry(place="elasticdl.cli.data:data", help="Make, convert and describe data sets."),
    "checkpoints": Entry(
        place="elasticdl.cli.checkpoints:checkpoints", help="Describe checkpoints and export their tables."
    ),
    "plan": Entry(place="elasticdl.cli.plan:plan", help="Explain who gets how many nodes, and what if."),
    "simulate": Entry(
        place="elasticdl.cli.simulate:simulate", help="Replay a workload under scheduling policies."
    ),
    "controller": Entry(
        place="elasticdl.cli.controller:controller", help="Run the controller of a cluster's TrainingJobs."
    ),
    "zoo": Entry(place="elasticdl.cli.zoo:zoo", help="Put a model zoo into an image."),
    "ps": Entry(place="elasticdl.cli.ps:ps", help="Run one parameter server of a job by hand."),
    "paddle": Entry(place="elasticdl.cli.paddle:paddle", help="Run jobs of PaddlePaddle's Kubernetes guide."),
    "doctor": Entry(
        place="elasticdl.cli.doctor:doctor", help="Check this machine and its cluster, and say what to fix."
    ),
    "completion": Entry(place="elasticdl.cli.completion:completion", help="Print a script for your shell."),
}


@click.group(
    cls=LazyGroup,
    entries=COMMANDS,
    invoke_without_command=True,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        # Flags are written with underscores; dashes mean the same.
        "token_normalize_func": lambda token: token.replace("-", "_"),
    },
)
@click.version_option(__version__, prog_name="elasticdl")
@click.pass_context
def root(ctx: click.Context) -> None:
    """Deep-learning jobs that grow, shrink and survive.

    One command trains a model on this machine, or, given an image, on Kubernetes. Any process of a job may be
    killed at any moment; every sample is accounted for in the end.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), color=ctx.color)


def main(args: Sequence[str] | None = None) -> int:
    """Runs the command in `args`, or in the arguments of this process, and returns its exit code."""
    words = list(sys.argv[1:] if args is None else args)
    if args is None:
        # This process is the command's own.
        gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    # gRPC would print notes of lost connections between the lines of a display. What they mean, we say.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    if "_ELASTICDL_COMPLETE" in os.environ:
        from elasticdl.cli.completion import teach_equals_signs

        teach_equals_signs()
    try:
        color = False if os.environ.get("NO_COLOR") else None
        result = root.main(args=words, prog_name="elasticdl", standalone_mode=False, color=color)
    except UserError as error:
        return _say(error.message, error.hint, code=error.exit_code)
    except click.UsageError as error:
        return _say_usage(error)
    except click.ClickException as error:
        return _say(error.format_message(), "")
    except click.Abort as error:
        # click makes one thing of Ctrl-C and of an input that ends; the second is no wish of the user's.
        before = error.__cause__ or error.__context__
        return _say_crash(before, words) if isinstance(before, EOFError) else ExitCode.INTERRUPTED
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            place = f" ({error.filename})" if error.filename else ""
            return _say(f"There is no space left on the disk{place}.", "Free some and try again.")
        return _say_crash(error, words)
    except Exception as error:  # noqa: BLE001 - nothing is hidden: all of it is printed
        return _say_crash(error, words)
    return result if isinstance(result, int) else 0


def _say(message: str, hint: str, *, code: ExitCode = ExitCode.BAD_INPUT) -> int:
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True)
    if hint:
        click.echo(f"{click.style('hint:', fg='yellow')} {hint}", err=True)
    return code


def _say_usage(error: click.UsageError) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        # A group that was called without a command: its help is the answer, and no error.
        error.show(sys.stdout)
        return 0
    help_of = f"`{error.ctx.command_path} --help` explains it." if error.ctx else ""
    return _say(f"{error.format_message()}{_right_word(error)}", help_of)


def _right_word(error: click.UsageError) -> str:
    """Returns the word that was probably meant. click suggests it for options, and newer versions for commands."""
    group = error.ctx.command if error.ctx else None
    unknown = re.match("No such command '(.*?)'", error.message)
    if unknown and error.ctx and isinstance(group, click.Group):
        said = getattr(error, "possibilities", None)
        return "" if said else did_you_mean(unknown[1], group.list_commands(error.ctx))
    choices = getattr(getattr(getattr(error, "param", None), "type", None), "choices", ())
    wrong = re.match("'(.*?)' is not one of ", error.message)
    return did_you_mean(wrong[1], map(str, choices)) if wrong else ""


def _say_crash(error: BaseException, words: list[str]) -> int:
    import platform
    import shlex
    import traceback

    click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    click.echo(
        f"{click.style('elasticdl crashed.', fg='red', bold=True)} This is a defect of elasticdl, not of your"
        " job. Please report it with everything above and below this line.\n"
        f"  command: {shlex.join(['elasticdl', *words])}\n"
        f"  elasticdl {__version__}, Python {platform.python_version()}, {platform.platform()}",
        err=True,
    )
    return ExitCode.CRASHED


if __name__ == "__main__":
    sys.exit(main())
