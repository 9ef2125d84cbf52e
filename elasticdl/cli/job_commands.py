"""`elasticdl train`, `evaluate` and `predict`: from what was typed to a checked JobSpec and its run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from elasticdl.cli.flags import JobCommand, given_flags, merged
from elasticdl.jobs import document
from elasticdl.jobs.definition_check import check_definition
from elasticdl.jobs.errors import UserError
from elasticdl.jobs.flag import JobKind
from elasticdl.jobs.leaves import Given
from elasticdl.jobs.spec import JobSpec, to_yaml
from elasticdl.jobs.store import new_suffix


def _command(kind: JobKind, help_text: str) -> JobCommand:
    def run(file: str | None, dry_run: bool, **_: Any) -> int:
        spec = _job(kind, click.get_current_context(), file)
        if dry_run:
            # In an image the model zoo is another one, or the same at another place.
            if spec.runs_here and spec.program == "definition":
                check_definition(spec)
            click.echo(to_yaml(spec), nl=False)
            return 0
        from elasticdl.cli.run import run_job

        return run_job(spec)

    options = [
        click.Option(
            ["-f", "--file", "file"],
            type=click.Path(),
            help="Job file (YAML); flags go before what it says. - reads standard input.",
        ),
        click.Option(["--dry_run"], is_flag=True, help="Print the whole job as YAML and do not run it."),
    ]
    return JobCommand(kind=kind, options=options, callback=run, help=help_text)


def _job(kind: JobKind, ctx: click.Context, file: str | None) -> JobSpec:
    from_file = _read(file) if file is not None else {}
    given = merged(from_file, given_flags(ctx))
    return JobSpec.assemble(kind=kind, given=given, name_suffix=new_suffix())


def _read(file: str) -> dict[str, Given]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UserError(f"The job file {file} is not UTF-8 text.") from None
    except OSError as error:
        raise UserError(f"The job file {file} cannot be read: {error.strerror}.") from None
    # The command says what kind of job this is: one file can describe a training and its evaluation.
    _kind, given = document.read(text, source="standard input" if file == "-" else file)
    return given


train = _command(
    "train",
    """Train a model.

    Give a model definition (--model_zoo, --model_def) and --training_data, or a --job_command. Without an
    --image_name the job runs on this machine.

    \b
    elasticdl train --model_zoo=model_zoo --model_def=digits.keras_cnn.custom_model \\
        --training_data=digits/train --validation_data=digits/test --num_epochs=5 --num_workers=2
    """,
)
evaluate = _command(
    "evaluate",
    """Evaluate a trained model.

    Give the model definition (--model_zoo, --model_def), --validation_data, and a checkpoint or an exported
    model with --checkpoint_dir_for_init.
    """,
)
predict = _command(
    "predict",
    """Make predictions with a trained model.

    Give the model definition (--model_zoo, --model_def), --prediction_data, a checkpoint or an exported model
    with --checkpoint_dir_for_init, and --output, a file that ends in .parquet or .csv.
    """,
)
