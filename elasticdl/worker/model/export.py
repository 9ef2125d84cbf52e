"""The end of a training: the model with its last values, in the framework's own form and in ours.

Ours stands in a folder among the framework's files, or beside a file that is all of the export (`NAME.elasticdl`), so
that `evaluate` and `predict` can start from an export as they can from a checkpoint.
"""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path

from elasticdl.data.remote.upload import upload
from elasticdl.errors import UserError
from elasticdl.jobs.flags.grammar import is_url
from elasticdl.jobs.spec import JobSpec
from elasticdl.ps.checkpoint.checkpoint_folders import (
    EXPORT_FOLDER,
    MANIFEST,
    Manifest,
    values_folder,
    write_manifest,
)
from elasticdl.ps.checkpoint.remote_checkpoint import sibling_url
from elasticdl.worker.model.model_store import save
from elasticdl.worker.trainer import Batch, Trainer


def export_model(spec: JobSpec, trainer: Trainer, example: Batch) -> list[str]:
    """Writes to --output. Returns one line a thing written."""
    output = spec.training.output
    if not is_url(output):
        return _export(spec, trainer, example, Path(output).resolve())
    with tempfile.TemporaryDirectory(prefix="elasticdl-export-") as folder:
        # The name decides the form: NAME.keras is a file.
        path = Path(folder) / output.partition("?")[0].rstrip("/").rpartition("/")[2]
        lines = _export(spec, trainer, example, path)
        values = values_folder(path)
        if path.is_file():
            upload(values, sibling_url(output, f".{EXPORT_FOLDER}"), last=MANIFEST)
        upload(path, output, last=MANIFEST)
        return [line.replace(str(path), output) for line in lines]


def _export(spec: JobSpec, trainer: Trainer, example: Batch, path: Path) -> list[str]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = trainer.export(path, example)
        lines.append(_write_values(spec, trainer, path))
    except OSError as error:
        reason = "the disk is full" if error.errno == errno.ENOSPC else error.strerror or str(error)
        raise UserError(f"The model could not be written to {path}: {reason}.") from error
    return lines


def _write_values(spec: JobSpec, trainer: Trainer, path: Path) -> str:
    folder = values_folder(path)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    file = save(trainer, folder, with_optimizer=False)
    attributes = {"job": spec.job_name, "model_def": spec.model.model_def, "owner": "export"}
    write_manifest(folder, Manifest(step=0, files=(file,), attributes=attributes), None)
    return f"values for `elasticdl evaluate` and `predict`: --checkpoint_dir_for_init={path}"
