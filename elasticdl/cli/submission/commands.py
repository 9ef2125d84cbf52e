"""`elasticdl train`, `evaluate` and `predict`: from what was typed to a checked JobSpec and its run."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import click

from elasticdl.cli.group import UserPath
from elasticdl.cli.submission.flags import JobCommand, given_flags, merged
from elasticdl.errors import UserError
from elasticdl.jobs.definition_check import check_definition
from elasticdl.jobs.flags.flag import JobKind
from elasticdl.jobs.job_store import new_suffix
from elasticdl.jobs.schema import document
from elasticdl.jobs.schema.flag_index import Given
from elasticdl.jobs.spec import JobSpec, to_yaml


def _command(kind: JobKind, help_text: str) -> JobCommand:
    def run(
        file: str | None,
        dry_run: bool,
        yaml: str | None,
        wait: bool,
        detach: bool,
        replace: bool,
        **_: Any,
    ) -> int:
        spec = _job(kind, click.get_current_context(), file)
        if not spec.runs_here:
            if detach and wait:
                raise UserError("--detach and --wait exclude each other.")
            return _on_a_cluster(spec, dry_run=dry_run, yaml=yaml, wait=wait, replace=replace)
        if yaml or wait:
            flag = "--yaml" if yaml else "--wait"
            raise UserError(f"{flag} is for jobs on a cluster: this one has no --image_name and runs here.")
        if dry_run:
            if spec.program == "definition":
                check_definition(spec)
            click.echo(to_yaml(spec), nl=False)
            return 0
        from elasticdl.cli.submission.run import run_detached, run_local

        return (run_detached if detach else run_local)(spec, replace=replace)

    options = [
        click.Option(
            ["-f", "--file", "file"],
            type=UserPath(),
            help="Job file (YAML); flags go before what it says. - reads standard input.",
        ),
        click.Option(
            ["--dry_run"],
            is_flag=True,
            help="Print the whole job as YAML, with an image as manifests for Kubernetes, and do not run it.",
        ),
        click.Option(
            ["--yaml"],
            type=UserPath(),
            help="Write the manifests for Kubernetes to this file instead of submitting them.",
        ),
        click.Option(
            ["--wait"], is_flag=True, help="On a cluster: show the job until it ends, as a job here is shown."
        ),
        click.Option(
            ["--detach"],
            is_flag=True,
            help="Return when the job has started; it goes on without this terminal. A job on a cluster always does.",
        ),
        click.Option(
            ["--replace"],
            is_flag=True,
            help="Stop a running job of the same name first. On a cluster, remove an ended one, too.",
        ),
    ]
    return JobCommand(kind=kind, options=options, callback=run, help=help_text)


def _on_a_cluster(spec: JobSpec, *, dry_run: bool, yaml: str | None, wait: bool, replace: bool) -> int:
    if yaml:
        _write_manifests(spec, Path(yaml))
        click.echo(f"The manifests of job {spec.job_name} are in {yaml}: kubectl apply -f {yaml}")
        return 0
    if dry_run:
        click.echo(_manifests(spec, is_preview=True), nl=False)
        return 0
    from elasticdl.cli.submission.run import submit

    return submit(spec, wait=wait, replace=replace)


def _manifests(spec: JobSpec, *, is_preview: bool = False) -> str:
    """Returns a TrainingJob if the job has a range of sizes, else the objects of the job; a preview has no secrets."""
    from elasticdl.catalog.kubernetes.submission import complete_spec, manifests_text, preview_text
    from elasticdl.catalog.kubernetes.training_job import has_size_range, training_job_text

    if has_size_range(spec):
        return training_job_text(complete_spec(spec), is_preview=is_preview)
    return preview_text(spec) if is_preview else manifests_text(spec)


def _write_manifests(spec: JobSpec, path: Path) -> None:
    # Before the file is opened, which truncates it: this may fail.
    text = _manifests(spec)
    try:
        # It contains the token and the key of the job, and the values of its variables.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                # A file that was there before has kept its mode.
                os.fchmod(file.fileno(), 0o600)
            file.write(text)
    except OSError as error:
        raise UserError(f"--yaml: {path} cannot be written: {error.strerror}.") from None


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
